#include "csrc/data/dtype.h"

#include <set>
#include <string>

#include "csrc/base/error.h"
#include "tests/csrc/catch.h"

namespace taco {
namespace {

TEST_CASE("dtype: sizes and torch's names") {
  CHECK(elementBytes(DType::kFloat32) == 4);
  CHECK(elementBytes(DType::kFloat64) == 8);
  CHECK(elementBytes(DType::kFloat16) == 2);
  CHECK(elementBytes(DType::kBFloat16) == 2);
  CHECK(elementBytes(DType::kComplex64) == 8);
  CHECK(elementBytes(DType::kComplex128) == 16);
  CHECK(elementBytes(DType::kInt8) == 1);
  CHECK(elementBytes(DType::kUInt16) == 2);
  CHECK(elementBytes(DType::kInt32) == 4);
  CHECK(elementBytes(DType::kUInt64) == 8);
  CHECK(elementBytes(DType::kBool) == 1);
  CHECK(elementBytes(DType::kBytes1) == 1);
  CHECK(elementBytes(DType::kBytes2) == 2);
  CHECK(elementBytes(DType::kBytes4) == 4);
  CHECK(elementBytes(DType::kBytes8) == 8);
  CHECK(elementBytes(DType::kBytes16) == 16);

  CHECK(std::string(name(DType::kFloat32)) == "float32");
  CHECK(std::string(name(DType::kBFloat16)) == "bfloat16");
  CHECK(std::string(name(DType::kComplex128)) == "complex128");
  CHECK(std::string(name(DType::kUInt8)) == "uint8");
  CHECK(std::string(name(DType::kBool)) == "bool");
  CHECK(std::string(name(DType::kBytes1)) == "opaque 1-byte");
  CHECK(std::string(name(DType::kBytes16)) == "opaque 16-byte");
}

TEST_CASE("dtype: every dtype has a name of its own and is of exactly one kind") {
  std::set<std::string> names;
  int bools = 0;
  for (int code = 0; code < kNumDTypes; ++code) {
    const auto dtype = static_cast<DType>(code);
    CHECK(names.insert(name(dtype)).second);
    const int kinds = isFloatingPoint(dtype) + isComplex(dtype) + isInteger(dtype) +
                      isOpaque(dtype) + (dtype == DType::kBool ? 1 : 0);
    CHECK(kinds == 1);
    bools += dtype == DType::kBool ? 1 : 0;
  }
  CHECK(bools == 1);
  CHECK(isFloatingPoint(DType::kBFloat16));
  CHECK(isComplex(DType::kComplex64));
  CHECK(isInteger(DType::kUInt64));
  CHECK(isOpaque(DType::kBytes2));
}

TEST_CASE("dtype: a code from nowhere is an error that names it") {
  const auto unknown = static_cast<DType>(kNumDTypes);
  CHECK_THROWS_AS(elementBytes(unknown), Error);
  CHECK_THROWS_WITH(name(unknown), Catch::Matchers::ContainsSubstring("dtype code 20 is unknown"));
}

}  // namespace
}  // namespace taco
