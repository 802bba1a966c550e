#include "csrc/data/reduce_op.h"

#include <string>

#include "csrc/base/error.h"
#include "tests/csrc/catch.h"

namespace taco {
namespace {

TEST_CASE("reduce_op: names are torch's") {
  CHECK(std::string(name(ReduceOp::kSum)) == "SUM");
  CHECK(std::string(name(ReduceOp::kAvg)) == "AVG");
  CHECK(std::string(name(ReduceOp::kPremulSum)) == "PREMUL_SUM");
  CHECK(std::string(name(ReduceOp::kProduct)) == "PRODUCT");
  CHECK(std::string(name(ReduceOp::kMin)) == "MIN");
  CHECK(std::string(name(ReduceOp::kMax)) == "MAX");
  CHECK(std::string(name(ReduceOp::kBand)) == "BAND");
  CHECK(std::string(name(ReduceOp::kBor)) == "BOR");
  CHECK(std::string(name(ReduceOp::kBxor)) == "BXOR");
  CHECK_THROWS_AS(name(static_cast<ReduceOp>(kNumReduceOps)), Error);
}

// One row an operation, one letter a dtype in the order of the enumerators: float32 64 16 bfloat16,
// complex64 128, int8 16 32 64, uint8 16 32 64, bool, opaque 1 2 4 8 16.
TEST_CASE("reduce_op: which operation has a meaning for which dtype") {
  const std::string table[kNumReduceOps] = {
      "yyyy yy yyyy yyyy y -----",  // SUM
      "yyyy yy yyyy yyyy - -----",  // AVG
      "yyyy yy ---- ---- - -----",  // PREMUL_SUM
      "yyyy yy yyyy yyyy y -----",  // PRODUCT
      "yyyy -- yyyy yyyy y -----",  // MIN
      "yyyy -- yyyy yyyy y -----",  // MAX
      "---- -- yyyy yyyy y -----",  // BAND
      "---- -- yyyy yyyy y -----",  // BOR
      "---- -- yyyy yyyy y -----",  // BXOR
  };
  for (int op = 0; op < kNumReduceOps; ++op) {
    int dtype = 0;
    for (char letter : table[op]) {
      if (letter == ' ') continue;
      INFO(name(static_cast<ReduceOp>(op)) << " " << name(static_cast<DType>(dtype)));
      const bool supported =
          !whyUnsupported(static_cast<ReduceOp>(op), static_cast<DType>(dtype)).has_value();
      CHECK(supported == (letter == 'y'));
      ++dtype;
    }
    CHECK(dtype == kNumDTypes);
  }
}

TEST_CASE("reduce_op: the reason names operation and dtype") {
  CHECK(whyUnsupported(ReduceOp::kMax, DType::kComplex64) ==
        "MAX has no meaning for complex64: complex numbers are not ordered");
  CHECK(whyUnsupported(ReduceOp::kBxor, DType::kFloat32) ==
        "BXOR has no meaning for float32: bitwise operations need integers or bool");
  CHECK(whyUnsupported(ReduceOp::kSum, DType::kBytes1) ==
        "SUM has no meaning for opaque 1-byte: such elements can be moved but not computed with");
  CHECK(whyUnsupported(ReduceOp::kPremulSum, DType::kInt32) ==
        "PREMUL_SUM has no meaning for int32: the factor is a floating point or complex number");
  CHECK(whyUnsupported(ReduceOp::kAvg, DType::kBool) ==
        "AVG has no meaning for bool: truth values have no mean");
}

}  // namespace
}  // namespace taco
