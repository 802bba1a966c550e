#include "csrc/topk/scatter_add.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "csrc/base/error.h"
#include "csrc/data/reduce.h"
#include "tests/csrc/catch.h"
#include "tests/csrc/data/simd_targets.h"
#include "tests/csrc/topk/topk_reference.h"

namespace taco {
namespace {

using namespace taco::testing;
using Catch::Matchers::ContainsSubstring;

constexpr DType kDtypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

// k different indices below `count`, ascending.
std::vector<uint32_t> drawIndices(std::mt19937& random, size_t count, size_t k) {
  std::vector<uint32_t> indices;
  for (size_t i = 0; i < count; ++i) {
    // Each with the chance that is left: so k of them in the end.
    if (random() % (count - i) < k - indices.size()) indices.push_back(static_cast<uint32_t>(i));
  }
  return indices;
}

Bytes payloadOf(const std::vector<uint32_t>& indices, const std::vector<float>& values,
                PayloadLayout layout) {
  Bytes payload(layout.bytes());
  std::memcpy(payload.data(), indices.data(), layout.valueOffset());
  const DType dtype = layout.values == TopkValues::kFloat32 ? DType::kFloat32 : DType::kFloat16;
  const Bytes plain = stored(dtype, values);
  std::memcpy(payload.data() + layout.valueOffset(), plain.data(), plain.size());
  return payload;
}

std::vector<Bytes> drawPayloads(std::mt19937& random, size_t count, PayloadLayout layout, int m) {
  std::vector<Bytes> payloads;
  std::normal_distribution<float> normal;
  for (int p = 0; p < m; ++p) {
    std::vector<float> values(layout.k);
    for (float& value : values) value = normal(random);
    payloads.push_back(payloadOf(drawIndices(random, count, layout.k), values, layout));
  }
  return payloads;
}

struct Result {
  Bytes elements;
  bool finite = true;
  bool keptInside = true;  // nothing was written before or behind the elements
};

Result result(const std::vector<Bytes>& payloads, PayloadLayout layout, size_t count, DType dtype,
              int64_t divisor, size_t shift = 0) {
  constexpr size_t kFence = 128;
  std::vector<Bytes> moved;
  std::vector<const void*> pointers;
  for (const Bytes& payload : payloads) {
    moved.emplace_back(shift);
    moved.back().insert(moved.back().end(), payload.begin(), payload.end());
  }
  for (const Bytes& payload : moved) pointers.push_back(payload.data() + shift);
  const size_t bytes = count * elementBytes(dtype);
  Bytes memory(2 * kFence + shift + bytes, 0xcd);
  uint8_t* const to = memory.data() + kFence + shift;
  Result made;
  made.finite = scatterAdd(pointers, layout, {to, count, dtype}, divisor);
  made.elements.assign(to, to + bytes);
  const auto outside =
      std::count(memory.begin(), memory.begin() + kFence + static_cast<ptrdiff_t>(shift), 0xcd) +
      std::count(memory.end() - kFence, memory.end(), 0xcd);
  made.keptInside = outside == static_cast<ptrdiff_t>(2 * kFence + shift);
  return made;
}

TEST_CASE("scatter-add: every size, dtype, number of payloads and divisor") {
  std::mt19937 random(1);
  for (const size_t count : {1, 2, 15, 17, 100, 2047, 2048, 2049, 4113, 20000}) {
    for (const int m : {1, 2, 3, 16}) {
      for (const TopkValues values : {TopkValues::kFloat32, TopkValues::kFloat16}) {
        const size_t k = m == 2 ? count : topkCount(count, m == 16 ? 0.5 : 0.03);
        const PayloadLayout layout{k, values};
        const std::vector<Bytes> payloads = drawPayloads(random, count, layout, m);
        for (const DType dtype : kDtypes) {
          for (const int64_t divisor : {1, 4, 7}) {
            CAPTURE(count, m, layout.valueBytes(), name(dtype), divisor);
            const Result made = result(payloads, layout, count, dtype, divisor);
            CHECK(made.elements == referenceScatterAdd(payloads, layout, count, dtype, divisor));
            CHECK(made.finite);
            CHECK(made.keptInside);
          }
        }
      }
    }
  }
}

TEST_CASE("scatter-add: any address and every instruction set") {
  constexpr size_t kCount = 5000;
  std::mt19937 random(2);
  for (const TopkValues values : {TopkValues::kFloat32, TopkValues::kFloat16}) {
    const PayloadLayout layout{151, values};
    const std::vector<Bytes> payloads = drawPayloads(random, kCount, layout, 3);
    for (const DType dtype : kDtypes) {
      const Bytes expected = referenceScatterAdd(payloads, layout, kCount, dtype, 3);
      const int targets = forEachTarget([&](const char* target) {
        for (const size_t shift : {0, 1, 2, 4, 6, 63}) {
          CAPTURE(target, shift, name(dtype), layout.valueBytes());
          const Result made = result(payloads, layout, kCount, dtype, 3, shift);
          CHECK(made.elements == expected);
          CHECK(made.keptInside);
        }
      });
      CHECK(targets >= 1);
    }
  }
}

// From some size on the stores are others.
TEST_CASE("scatter-add: megabytes") {
  const size_t count = (size_t{1} << 20) + 12345;
  std::mt19937 random(3);
  const PayloadLayout layout{5000, TopkValues::kFloat32};
  const std::vector<Bytes> payloads = drawPayloads(random, count, layout, 2);
  const Bytes expected = referenceScatterAdd(payloads, layout, count, DType::kFloat32, 2);
  // Some are aligned to an element and to no vector, on every instruction set.
  forEachTarget([&](const char* target) {
    CAPTURE(target);
    for (const size_t shift : {0, 1, 4, 8, 16, 20, 32, 36, 48, 60}) {
      CAPTURE(shift);
      const Result made = result(payloads, layout, count, DType::kFloat32, 2, shift);
      CHECK(made.elements == expected);
      CHECK(made.keptInside);
    }
  });
}

TEST_CASE("scatter-add: in the order of the payloads, rounded once") {
  const PayloadLayout layout{1, TopkValues::kFloat32};
  const auto sum = [&](const std::vector<float>& values, DType dtype, int64_t divisor) {
    std::vector<Bytes> payloads;
    for (const float value : values) payloads.push_back(payloadOf({1}, {value}, layout));
    const Result made = result(payloads, layout, 2, dtype, divisor);
    CHECK(widened(dtype, made.elements.data()) == 0);
    return widened(dtype, made.elements.data() + elementBytes(dtype));
  };
  CHECK(sum({1e8f, 1, -1e8f}, DType::kFloat32, 1) == 0);
  CHECK(sum({1e8f, -1e8f, 1}, DType::kFloat32, 1) == 1);
  // 1 + 2^-9 + 2^-9 needs more than bfloat16 has: rounded after each step it would be 1.
  CHECK(sum({1, 0x1p-9f, 0x1p-9f, 0x1p-9f}, DType::kBFloat16, 1) == 1.0078125f);
  CHECK(sum({60000, 60000}, DType::kFloat16, 2) == 60000);
  CHECK(sum({-3}, DType::kFloat32, 3) == -1);
  CHECK(sum({1e-40f}, DType::kFloat32, 2) == 1e-40f / 2);  // a denormal
}

TEST_CASE("scatter-add: the bits of a dense AVG") {
  constexpr size_t kCount = 4000;
  constexpr int kRanks = 3;
  std::mt19937 random(4);
  const PayloadLayout layout{1000, TopkValues::kFloat32};
  std::vector<Bytes> payloads;
  std::vector<std::vector<float>> dense(kRanks, std::vector<float>(kCount));
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<float> values(layout.k);
    for (float& value : values) value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    const std::vector<uint32_t> indices = drawIndices(random, kCount, layout.k);
    for (size_t j = 0; j < layout.k; ++j) dense[rank][indices[j]] = values[j];
    payloads.push_back(payloadOf(indices, values, layout));
  }
  for (const DType dtype : kDtypes) {
    // A reduction of float32, and one rounding where the result is shorter.
    std::vector<float> average(kCount);
    const void* srcs[] = {dense[0].data(), dense[1].data(), dense[2].data()};
    reduce(average.data(), srcs, kRanks, kCount,
           lastLevel(ReduceOp::kAvg, DType::kFloat32, kRanks));
    const Result made = result(payloads, layout, kCount, dtype, kRanks);
    CHECK(made.elements == stored(dtype, average));
    CHECK_FALSE(made.finite);
  }
}

TEST_CASE("scatter-add: says whether all values are finite") {
  for (const TopkValues values : {TopkValues::kFloat32, TopkValues::kFloat16}) {
    constexpr size_t kChosen = 37;
    const PayloadLayout layout{kChosen, values};
    std::mt19937 random(5);
    const std::vector<uint32_t> indices = drawIndices(random, 100, kChosen);
    for (const float bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN()}) {
      for (size_t place = 0; place < kChosen; ++place) {
        std::vector<float> numbers(kChosen, -65504.0f);
        const std::vector<Bytes> good = {payloadOf(indices, numbers, layout)};
        CHECK(result(good, layout, 100, DType::kFloat32, 1).finite);
        numbers[place] = bad;
        const std::vector<Bytes> spoilt = {good[0], payloadOf(indices, numbers, layout)};
        const Result made = result(spoilt, layout, 100, DType::kFloat32, 1);
        CHECK_FALSE(made.finite);
        CHECK(made.elements == referenceScatterAdd(spoilt, layout, 100, DType::kFloat32, 1));
      }
    }
  }
}

TEST_CASE("scatter-add: indices that are wrong are refused before anything is written") {
  constexpr size_t kCount = 3000;
  constexpr size_t kChosen = 200;
  const PayloadLayout layout{kChosen, TopkValues::kFloat32};
  std::mt19937 random(6);
  const std::vector<Bytes> right = drawPayloads(random, kCount, layout, 3);
  const auto refuses = [&](size_t place, uint32_t index, const std::string& says) {
    CAPTURE(place, index);
    std::vector<Bytes> payloads = right;
    std::memcpy(payloads[1].data() + 4 * place, &index, 4);
    std::vector<const void*> pointers;
    for (const Bytes& payload : payloads) pointers.push_back(payload.data());
    std::vector<float> dense(kCount, 5.0f);
    const Buffer buffer{dense.data(), kCount, DType::kFloat32};
    try {
      scatterAdd(pointers, layout, buffer, 1);
      FAIL_CHECK("was taken");
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kMismatch);
      CHECK_THAT(error.what(), ContainsSubstring("TopK payload 1"));
      CHECK_THAT(error.what(), ContainsSubstring(says));
    }
    CHECK(std::count(dense.begin(), dense.end(), 5.0f) == kCount);
  };
  refuses(kChosen - 1, kCount, "its last index is 3000");
  refuses(kChosen - 1, UINT32_MAX, "4294967295");
  for (size_t place = 0; place + 1 < kChosen; ++place) {
    refuses(place, indexOf(right[1].data(), place + 1), "after");  // twice the same
    refuses(place, UINT32_MAX, "after 4294967295");
  }
  refuses(kChosen - 1, 0, "index 199 is 0");
}

TEST_CASE("scatter-add: edges") {
  float dense[3] = {1, 2, 3};
  const Buffer buffer{dense, 3, DType::kFloat32};
  CHECK(scatterAdd({}, {1}, buffer, 1));  // nobody sends anything
  CHECK(dense[0] + dense[1] + dense[2] == 0);
  CHECK(scatterAdd({}, {0}, {nullptr, 0, DType::kFloat32}, 1));
  const auto codeOf = [&](PayloadLayout layout, Buffer to, int64_t divisor) {
    try {
      scatterAdd({}, layout, to, divisor);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kSystem;
  };
  CHECK(codeOf({4}, buffer, 1) == ErrorCode::kInvalidArgument);
  CHECK(codeOf({1}, buffer, 0) == ErrorCode::kInvalidArgument);
  CHECK(codeOf({1}, buffer, -2) == ErrorCode::kInvalidArgument);
  CHECK(codeOf({1}, {dense, 1, DType::kFloat64}, 1) == ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace taco
