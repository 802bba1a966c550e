// Sweeps every operation and dtype against reduce_reference.h, on every instruction set this CPU
// has.
#include "csrc/data/reduce.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/error.h"
#include "tests/csrc/catch.h"
#include "tests/csrc/data/reduce_inputs.h"
#include "tests/csrc/data/reduce_reference.h"
#include "tests/csrc/data/simd_targets.h"

namespace taco {
namespace {

using testing::Bytes;
using testing::forEachTarget;
using testing::makeInput;
using testing::referenceReduce;

constexpr int kMaxSrcs = 6;
constexpr size_t kMaxCount = 1025;
constexpr size_t kMargin = 64;  // sentinel bytes before and past the elements
constexpr uint8_t kSentinel = 0xA5;

// Memory with sentinels around `bytes` bytes that begin `misalignment` bytes past a line boundary.
class Arena {
 public:
  Arena(size_t bytes, size_t misalignment) : storage_(bytes + 4 * kMargin, kSentinel) {
    const auto address = reinterpret_cast<uintptr_t>(storage_.data());
    begin_ = kMargin + (kMargin - address % kMargin) % kMargin + misalignment;
    size_ = bytes;
  }
  Arena(const Arena& other) = delete;
  Arena(Arena&& other) = default;
  uint8_t* data() { return storage_.data() + begin_; }
  void fill(const Bytes& from) { std::copy_n(from.begin(), size_, data()); }

  // Empty if the elements equal `expected` and the sentinels are untouched; else what is wrong.
  std::string difference(const Bytes& expected) {
    for (size_t i = 0; i < storage_.size(); ++i) {
      const bool inside = i >= begin_ && i < begin_ + size_;
      const uint8_t want = inside ? expected[i - begin_] : kSentinel;
      if (storage_[i] != want) {
        return "byte " + std::to_string(static_cast<long>(i) - static_cast<long>(begin_)) + " is " +
               std::to_string(storage_[i]) + ", not " + std::to_string(want);
      }
    }
    return "";
  }

 private:
  Bytes storage_;
  size_t begin_ = 0;
  size_t size_ = 0;
};

// One call of reducePush. `inPlace`: the sources that are destinations too; `extraDsts`: how many
// destinations there are besides.
struct Shape {
  size_t count = 0;
  size_t misalignment = 0;  // bytes; source s begins s times as far from a boundary
  std::vector<int> inPlace;
  int extraDsts = 0;
};

// Empty, or what differs from `expected` (the result for kMaxCount elements) and where.
std::string problemWith(const Shape& shape, const std::vector<Bytes>& inputs, const Bytes& expected,
                        const Reduction& reduction) {
  const size_t bytes = shape.count * elementBytes(reduction.dtype);
  std::vector<Arena> arenas;
  std::vector<const void*> srcs;
  std::vector<void*> dsts;
  const auto misaligned = [&](size_t index) { return (index + 1) * shape.misalignment % kMargin; };
  for (size_t s = 0; s < inputs.size(); ++s) {
    arenas.emplace_back(bytes, misaligned(s));
    arenas.back().fill(inputs[s]);
  }
  for (int t = 0; t < shape.extraDsts; ++t) {
    arenas.emplace_back(bytes, misaligned(inputs.size() + static_cast<size_t>(t)));
  }
  for (size_t s = 0; s < inputs.size(); ++s) srcs.push_back(arenas[s].data());
  for (int s : shape.inPlace) dsts.push_back(arenas[static_cast<size_t>(s)].data());
  for (size_t t = inputs.size(); t < arenas.size(); ++t) dsts.push_back(arenas[t].data());

  reducePush(dsts.data(), static_cast<int>(dsts.size()), srcs.data(), static_cast<int>(srcs.size()),
             shape.count, reduction);

  for (size_t a = 0; a < arenas.size(); ++a) {
    const bool isDst = std::find(dsts.begin(), dsts.end(), arenas[a].data()) != dsts.end();
    const std::string difference = arenas[a].difference(isDst ? expected : inputs[a]);
    if (!difference.empty()) {
      return std::string(name(reduction.op)) + " " + name(reduction.dtype) + ", " +
             std::to_string(inputs.size()) + " sources, " + std::to_string(dsts.size()) +
             " destinations, count " + std::to_string(shape.count) + ", misaligned by " +
             std::to_string(shape.misalignment) + ", buffer " + std::to_string(a) + ": " +
             difference;
    }
  }
  return "";
}

std::vector<size_t> interestingCounts(size_t elementSize) {
  std::vector<size_t> counts;
  const size_t vectorLanes = 64 / elementSize;  // the widest vector there is
  for (size_t count = 0; count <= 2 * vectorLanes + 1; ++count) counts.push_back(count);
  for (size_t around : {4 * vectorLanes, 8 * vectorLanes}) {
    counts.insert(counts.end(), {around - 1, around, around + 1});
  }
  counts.insert(counts.end(), {1023, 1024, 1025});
  return counts;
}

// All shapes for one reduction of `numSrcs` sources.
std::vector<Shape> shapesFor(size_t elementSize, int numSrcs) {
  std::vector<Shape> shapes;
  for (size_t count : interestingCounts(elementSize)) {
    shapes.push_back({count, 0, {}, 1});
    shapes.push_back({count, elementSize, {}, 1});
  }
  for (size_t count : {size_t{1}, size_t{5}, size_t{67}, kMaxCount}) {
    for (size_t misalignment : {size_t{0}, size_t{1}, elementSize}) {
      for (int s = 0; s < numSrcs; ++s) shapes.push_back({count, misalignment, {s}, 0});
      std::vector<int> all;
      for (int s = 0; s < numSrcs; ++s) all.push_back(s);
      shapes.push_back({count, misalignment, all, 0});
      shapes.push_back({count, misalignment, {numSrcs - 1}, 2});
    }
  }
  return shapes;
}

// The levels at which `op` does different things.
std::vector<Reduction> reductionsOf(ReduceOp op, DType dtype) {
  if (op == ReduceOp::kAvg) {
    return {firstLevel(op, dtype), lastLevel(op, dtype, 3), onlyLevel(op, dtype, 300)};
  }
  if (op == ReduceOp::kPremulSum) {
    std::vector<Reduction> reductions = {firstLevel(op, dtype, 0.3), middleLevel(op, dtype),
                                         lastLevel(op, dtype, 8), onlyLevel(op, dtype, 8, 1e-5)};
    if (isComplex(dtype)) reductions.push_back(firstLevel(op, dtype, {0.7, -1.3}));
    return reductions;
  }
  return {onlyLevel(op, dtype, 5)};
}

// Returns how many calls were compared.
size_t sweep(DType dtype) {
  std::vector<Bytes> all;
  for (int s = 0; s < kMaxSrcs; ++s) {
    all.push_back(makeInput(dtype, kMaxCount, 77u + static_cast<uint32_t>(s)));
  }
  size_t compared = 0;
  for (int code = 0; code < kNumReduceOps; ++code) {
    const auto op = static_cast<ReduceOp>(code);
    if (whyUnsupported(op, dtype)) continue;
    for (const Reduction& reduction : reductionsOf(op, dtype)) {
      for (int numSrcs = 1; numSrcs <= kMaxSrcs; ++numSrcs) {
        const std::vector<Bytes> inputs(all.begin(), all.begin() + numSrcs);
        const Bytes expected = referenceReduce(inputs, reduction);
        const std::vector<Shape> shapes = shapesFor(elementBytes(dtype), numSrcs);
        forEachTarget([&](const char* target) {
          for (const Shape& shape : shapes) {
            const std::string problem = problemWith(shape, inputs, expected, reduction);
            if (!problem.empty()) FAIL(target << ": " << problem);
            ++compared;
          }
        });
      }
    }
  }
  return compared;
}

TEST_CASE("reduce: float32 equals the reference in every shape") {
  CHECK(sweep(DType::kFloat32) > 1000);
}
TEST_CASE("reduce: float64 equals the reference in every shape") {
  CHECK(sweep(DType::kFloat64) > 1000);
}
TEST_CASE("reduce: float16 equals the reference in every shape") {
  CHECK(sweep(DType::kFloat16) > 1000);
}
TEST_CASE("reduce: bfloat16 equals the reference in every shape") {
  CHECK(sweep(DType::kBFloat16) > 1000);
}
TEST_CASE("reduce: complex equals the reference in every shape") {
  CHECK(sweep(DType::kComplex64) > 1000);
  CHECK(sweep(DType::kComplex128) > 1000);
}
TEST_CASE("reduce: signed integers equal the reference in every shape") {
  for (DType dtype : {DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64}) {
    CHECK(sweep(dtype) > 1000);
  }
}
TEST_CASE("reduce: unsigned integers equal the reference in every shape") {
  for (DType dtype : {DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64}) {
    CHECK(sweep(dtype) > 1000);
  }
}
TEST_CASE("reduce: bool equals the reference in every shape") { CHECK(sweep(DType::kBool) > 1000); }

}  // namespace
}  // namespace taco
