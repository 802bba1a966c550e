// Every float16 and bfloat16 there is, and the rounding of many results, on every instruction set.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "csrc/data/reduce.h"
#include "tests/csrc/catch.h"
#include "tests/csrc/data/reduce_reference.h"
#include "tests/csrc/data/simd_targets.h"

namespace taco {
namespace {

using testing::Bytes;
using testing::forEachTarget;
using testing::referenceReduce;

constexpr size_t kAll = 65536;

Bytes bytesOf(const std::vector<uint16_t>& halves) {
  Bytes bytes(halves.size() * 2);
  std::memcpy(bytes.data(), halves.data(), bytes.size());
  return bytes;
}

std::vector<uint16_t> everyHalf() {
  std::vector<uint16_t> halves(kAll);
  for (size_t i = 0; i < kAll; ++i) halves[i] = static_cast<uint16_t>(i);
  return halves;
}

// Compares with the reference on every target.
void checkAgainstReference(const std::vector<Bytes>& srcs, const Reduction& reduction) {
  const Bytes expected = referenceReduce(srcs, reduction);
  std::vector<const void*> pointers;
  for (const Bytes& src : srcs) pointers.push_back(src.data());
  forEachTarget([&](const char* target) {
    Bytes result(expected.size());
    reduce(result.data(), pointers.data(), static_cast<int>(pointers.size()), expected.size() / 2,
           reduction);
    INFO(target << " " << name(reduction.op) << " " << name(reduction.dtype));
    CHECK(result == expected);
  });
}

TEST_CASE("reduce half: the reference itself reads and writes float16 as the standard says") {
  using testing::ReferenceFloat16;
  CHECK(ReferenceFloat16::decode(0x3C00) == 1.0f);
  CHECK(ReferenceFloat16::decode(0xC000) == -2.0f);
  CHECK(ReferenceFloat16::decode(0x7BFF) == 65504.0f);
  CHECK(ReferenceFloat16::decode(0x0001) == std::ldexp(1.0f, -24));
  CHECK(ReferenceFloat16::encode(65519.0f) == 0x7BFF);
  CHECK(ReferenceFloat16::encode(65520.0f) == 0x7C00);  // a tie that rounds to inf
  CHECK(ReferenceFloat16::encode(1.0f + std::ldexp(1.0f, -11)) == 0x3C00);  // ties to even
  CHECK(ReferenceFloat16::encode(1.0f + 3 * std::ldexp(1.0f, -11)) == 0x3C02);
  CHECK(ReferenceFloat16::encode(std::ldexp(1.0f, -25)) == 0);
  CHECK(testing::ReferenceBFloat16::encode(1.0f + std::ldexp(1.0f, -8)) == 0x3F80);
  CHECK(testing::ReferenceBFloat16::encode(1.0f + 3 * std::ldexp(1.0f, -8)) == 0x3F82);
  CHECK(testing::ReferenceBFloat16::encode(3.4e38f) == 0x7F80);
}

TEST_CASE("reduce half: every value survives being widened and rounded back") {
  for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const auto timesOne = firstLevel(ReduceOp::kPremulSum, dtype, 1.0);
    std::vector<uint16_t> expected = everyHalf();
    const uint16_t inf = dtype == DType::kFloat16 ? 0x7C00 : 0x7F80;
    const uint16_t nan = dtype == DType::kFloat16 ? 0x7E00 : 0x7FC0;
    for (uint16_t& half : expected) {
      if ((half & 0x7FFF) > inf) half = nan;
    }
    const std::vector<uint16_t> all = everyHalf();
    const void* srcs[] = {all.data()};
    forEachTarget([&](const char* target) {
      std::vector<uint16_t> result(kAll);
      reduce(result.data(), srcs, 1, kAll, timesOne);
      INFO(target << " " << name(dtype));
      CHECK(result == expected);
    });
  }
}

TEST_CASE("reduce half: every value scaled into the denormals and past the largest number") {
  for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (double factor : {1.0 / 3, 0.5, 1.0 / 4096, 3e-8, 1.0001, 1.5, 3000.0, 1e36}) {
      checkAgainstReference({bytesOf(everyHalf())},
                            firstLevel(ReduceOp::kPremulSum, dtype, factor));
    }
    checkAgainstReference({bytesOf(everyHalf())}, lastLevel(ReduceOp::kAvg, dtype, 7));
  }
}

TEST_CASE("reduce half: every value with a random partner") {
  std::mt19937 random(5);
  std::vector<uint16_t> partners = everyHalf();
  std::shuffle(partners.begin(), partners.end(), random);
  // Near one another, so that the sum has bits to round.
  std::vector<uint16_t> neighbours = everyHalf();
  for (uint16_t& half : neighbours) half = static_cast<uint16_t>(half + random() % 4096);
  for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
      const auto reduction = onlyLevel(op, dtype, 3);
      checkAgainstReference({bytesOf(everyHalf()), bytesOf(partners)}, reduction);
      checkAgainstReference({bytesOf(neighbours), bytesOf(everyHalf()), bytesOf(partners)},
                            reduction);
    }
  }
}

TEST_CASE("reduce half: many small numbers are added in float32 and rounded once") {
  // 2048 + 1 is not a float16; 2048 + 1 + 1 + 1 + 1 is.
  const uint16_t big = testing::ReferenceFloat16::encode(2048.0f);
  const uint16_t one = testing::ReferenceFloat16::encode(1.0f);
  const void* srcs[] = {&big, &one, &one, &one, &one};
  uint16_t result = 0;
  reduce(&result, srcs, 5, 1, onlyLevel(ReduceOp::kSum, DType::kFloat16, 5));
  CHECK(testing::ReferenceFloat16::decode(result) == 2052.0f);
}

}  // namespace
}  // namespace taco
