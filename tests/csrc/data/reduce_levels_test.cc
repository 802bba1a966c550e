// An operation applied over two levels, and what reduce() refuses.
#include <complex>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>

#include "csrc/base/error.h"
#include "csrc/data/reduce.h"
#include "tests/csrc/catch.h"

namespace taco {
namespace {

using Catch::Matchers::ContainsSubstring;

template <typename T>
T reduceTwo(T a, T b, const Reduction& reduction) {
  T result{};
  const void* srcs[] = {&a, &b};
  reduce(&result, srcs, 2, 1, reduction);
  return result;
}

template <typename T>
T reduceOne(T a, const Reduction& reduction) {
  const void* srcs[] = {&a};
  reduce(&a, srcs, 1, 1, reduction);
  return a;
}

ErrorCode codeOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  FAIL("nothing was thrown");
  return ErrorCode::kSystem;
}

TEST_CASE("reduce levels: PREMUL_SUM multiplies at the first level only") {
  const auto op = ReduceOp::kPremulSum;
  const auto inNode = firstLevel(op, DType::kFloat64, 0.5);
  const auto acrossNodes = lastLevel(op, DType::kFloat64, 4);
  const double result =
      reduceTwo(reduceTwo(1.0, 2.0, inNode), reduceTwo(3.0, 4.0, inNode), acrossNodes);
  CHECK(result == 5.0);
  CHECK(reduceTwo(1.0, 2.0, middleLevel(op, DType::kFloat64)) == 3.0);
  CHECK(reduceTwo(1.0, 2.0, onlyLevel(op, DType::kFloat64, 2, 3.0)) == 9.0);
}

TEST_CASE("reduce levels: AVG divides at the last level only") {
  const auto op = ReduceOp::kAvg;
  const auto inNode = firstLevel(op, DType::kInt32);
  const auto acrossNodes = lastLevel(op, DType::kInt32, 4);
  const int32_t result = reduceTwo(reduceTwo<int32_t>(-1, -2, inNode),
                                   reduceTwo<int32_t>(-3, -5, inNode), acrossNodes);
  CHECK(result == -2);  // -11 / 4 toward zero
  CHECK(reduceTwo(1.0f, 2.0f, onlyLevel(op, DType::kFloat32, 2)) == 1.5f);
}

TEST_CASE("reduce levels: a group of one rank still scales and divides") {
  CHECK(reduceOne(3.0f, onlyLevel(ReduceOp::kPremulSum, DType::kFloat32, 1, 2.0)) == 6.0f);
  CHECK(reduceOne(3.0f, lastLevel(ReduceOp::kAvg, DType::kFloat32, 2)) == 1.5f);
  CHECK(reduceOne(3.0f, onlyLevel(ReduceOp::kAvg, DType::kFloat32, 1)) == 3.0f);
  CHECK(reduceOne<uint8_t>(200, onlyLevel(ReduceOp::kSum, DType::kBool, 1)) == 1);
}

TEST_CASE("reduce levels: a real factor scales complex numbers part by part") {
  const float inf = std::numeric_limits<float>::infinity();
  const std::complex<float> one(inf, 1.0f);
  const auto scaled = reduceOne(one, firstLevel(ReduceOp::kPremulSum, DType::kComplex64, 2.0));
  CHECK(scaled == std::complex<float>(inf, 2.0f));
  const auto turned = reduceOne(std::complex<double>(1, 2),
                                firstLevel(ReduceOp::kPremulSum, DType::kComplex128, {0, 1}));
  CHECK(turned == std::complex<double>(-2, 1));
}

TEST_CASE("reduce levels: arguments without a meaning are refused with the reason") {
  CHECK(codeOf([] { firstLevel(ReduceOp::kMax, DType::kComplex64); }) == ErrorCode::kUnsupported);
  CHECK_THROWS_WITH(onlyLevel(ReduceOp::kBxor, DType::kFloat32, 2),
                    ContainsSubstring("BXOR has no meaning for float32"));
  CHECK(codeOf([] { lastLevel(ReduceOp::kAvg, DType::kFloat32, 0); }) ==
        ErrorCode::kInvalidArgument);
  CHECK_THROWS_WITH(firstLevel(ReduceOp::kPremulSum, DType::kFloat32, {1, 2}),
                    ContainsSubstring("imaginary part 2") && ContainsSubstring("float32"));
  // The factor of another operation is not looked at.
  CHECK_FALSE(firstLevel(ReduceOp::kSum, DType::kFloat32, {1, 2}).scaleInputs);
}

TEST_CASE("reduce: refuses what it cannot do before it writes anything") {
  float value = 1.0f;
  const void* srcs[] = {&value};
  float result = 7.0f;
  void* dsts[] = {&result};
  const auto sum = onlyLevel(ReduceOp::kSum, DType::kFloat32, 1);
  CHECK(codeOf([&] { reduce(&result, srcs, 0, 1, sum); }) == ErrorCode::kInvalidArgument);
  CHECK(codeOf([&] { reducePush(dsts, 0, srcs, 1, 1, sum); }) == ErrorCode::kInvalidArgument);
  Reduction bad = sum;
  bad.op = ReduceOp::kBor;
  CHECK(codeOf([&] { reduce(&result, srcs, 1, 1, bad); }) == ErrorCode::kUnsupported);
  bad = sum;
  bad.divisor = 0;
  CHECK(codeOf([&] { reduce(&result, srcs, 1, 1, bad); }) == ErrorCode::kInvalidArgument);
  reduce(nullptr, srcs, 1, 0, sum);  // nothing to do
  CHECK(result == 7.0f);
}

TEST_CASE("reduce: NaN wins in MIN and MAX from either side, and one bit pattern is stored") {
  const float nan = -std::numeric_limits<float>::quiet_NaN();
  for (ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kSum, ReduceOp::kProduct}) {
    const auto reduction = onlyLevel(op, DType::kFloat32, 2);
    for (const auto& [a, b] : {std::pair{nan, 1.0f}, std::pair{1.0f, nan}, std::pair{nan, nan}}) {
      const float result = reduceTwo(a, b, reduction);
      uint32_t bits;
      std::memcpy(&bits, &result, sizeof(bits));
      CHECK(bits == 0x7FC00000u);
    }
  }
}

}  // namespace
}  // namespace taco
