// The benchmark's check of results: it accepts what is right, bit for bit, and notices everything
// else.

#include "perf/native/problem.h"

#include <cstring>
#include <vector>

#include "tests/csrc/catch.h"

namespace taco::perf {
namespace {

constexpr int kRanks = 3;
constexpr size_t kCount = 1000;

float valueOf(ElementType type, const char* element) {
  uint32_t bits = 0;
  std::memcpy(&bits, element, elementBytes(type));
  if (type == ElementType::kFloat16 && bits != 0) {
    bits = (((bits >> 10) + 127 - 15) << 23) | ((bits & 0x3ff) << 13);
  } else if (type == ElementType::kBFloat16) {
    bits <<= 16;
  }
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

void store(ElementType type, float value, char* element) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  if (type == ElementType::kFloat16 && value != 0) {
    bits = ((((bits >> 23) & 0xff) - 127 + 15) << 10) | ((bits >> 13) & 0x3ff);
  } else if (type == ElementType::kBFloat16) {
    bits >>= 16;
  }
  std::memcpy(element, &bits, elementBytes(type));
}

// What rank `self` has after the operation, worked out the slow way.
std::vector<char> resultOf(Operation operation, ElementType type, int self, int repeat) {
  std::vector<std::vector<char>> inputs;
  size_t outBytes = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    const Problem problem(operation, type, kCount, rank, kRanks);
    inputs.emplace_back(problem.inBytes());
    problem.fill(inputs.back().data(), repeat);
    outBytes = problem.outBytes() == 0 ? problem.inBytes() : problem.outBytes();
  }
  const size_t size = elementBytes(type);
  const size_t block = kCount * size;
  std::vector<char> result(outBytes);
  const auto at = [&](int rank) { return static_cast<size_t>(rank) * block; };
  switch (operation) {
    case Operation::kBroadcast:
      return inputs[0];
    case Operation::kAllReduce:
    case Operation::kReduceScatter: {
      const size_t offset = operation == Operation::kAllReduce ? 0 : at(self);
      for (size_t i = 0; i < block; i += size) {
        float sum = 0;
        for (const auto& input : inputs) sum += valueOf(type, input.data() + offset + i);
        store(type, sum, result.data() + i);
      }
      return result;
    }
    case Operation::kAllGather:
    case Operation::kAllToAll:
      for (int rank = 0; rank < kRanks; ++rank) {
        const size_t from = operation == Operation::kAllGather ? 0 : at(self);
        std::memcpy(result.data() + at(rank), inputs[static_cast<size_t>(rank)].data() + from,
                    block);
      }
      return result;
  }
  return result;
}

TEST_CASE("what every operation must give is accepted, and one changed bit is noticed") {
  for (const Operation operation :
       {Operation::kAllReduce, Operation::kAllGather, Operation::kReduceScatter,
        Operation::kBroadcast, Operation::kAllToAll}) {
    for (const ElementType type :
         {ElementType::kFloat32, ElementType::kFloat16, ElementType::kBFloat16}) {
      for (int rank = 0; rank < kRanks; ++rank) {
        INFO(name(operation) << " " << name(type) << " on rank " << rank);
        const Problem problem(operation, type, kCount, rank, kRanks);
        std::vector<char> result = resultOf(operation, type, rank, 7);
        CHECK(problem.wrong(result.data(), 7) == 0);
        result.back() = static_cast<char>(result.back() ^ 1);
        CHECK(problem.wrong(result.data(), 7) == 1);
      }
    }
  }
}

TEST_CASE("a result of the repeat before, and a result that moved by a block, are wrong") {
  const Problem problem(Operation::kAllReduce, ElementType::kFloat32, kCount, 0, kRanks);
  const std::vector<char> result = resultOf(Operation::kAllReduce, ElementType::kFloat32, 0, 3);
  CHECK(problem.wrong(result.data(), 3) == 0);
  CHECK(problem.wrong(result.data(), 4) > kCount / 2);
  std::vector<char> moved(result.begin() + 64, result.end());  // 16 elements further
  moved.insert(moved.end(), 64, 0);
  CHECK(problem.wrong(moved.data(), 3) > kCount / 2);
}

TEST_CASE("an operation that did nothing is wrong") {
  for (const Operation operation : {Operation::kAllReduce, Operation::kBroadcast}) {
    const Problem problem(operation, ElementType::kFloat32, kCount, 1, kRanks);
    std::vector<char> data(problem.inBytes());
    problem.fill(data.data(), 0);
    CHECK(problem.wrong(data.data(), 0) > kCount / 2);
  }
}

TEST_CASE("the size of an operation is that of its larger side") {
  CHECK(Problem(Operation::kAllReduce, ElementType::kFloat32, 10, 0, 4).totalBytes() == 40);
  CHECK(Problem(Operation::kAllGather, ElementType::kFloat32, 10, 0, 4).totalBytes() == 160);
  CHECK(Problem(Operation::kReduceScatter, ElementType::kFloat16, 10, 0, 4).totalBytes() == 80);
  CHECK(Problem(Operation::kAllToAll, ElementType::kBFloat16, 10, 0, 4).totalBytes() == 80);
}

}  // namespace
}  // namespace taco::perf
