// Between reduce.cc, which checks and simplifies, and the loops, one file a family of dtypes:
// reduce_float.cc, reduce_half.cc, reduce_complex.cc, reduce_integer.cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "csrc/data/dtype.h"

namespace taco::data_internal {

// What a loop does; the ReduceOps and their levels boil down to these.
enum class Kernel : uint8_t {
  kSum,
  kSumDivide,  // the sum divided by Operands::divisor
  kScaledSum,  // the sum of the sources times Operands::scaleReal (complex: + i scaleImag)
  kProduct,
  kMin,
  kMax,
  kAnd,
  kOr,
  kXor,
};

struct Operands {
  void* const* dsts = nullptr;
  int numDsts = 0;
  const void* const* srcs = nullptr;
  int numSrcs = 0;
  size_t count = 0;
  double scaleReal = 1;
  double scaleImag = 0;
  int64_t divisor = 1;
};

// Each takes the kernels that whyUnsupported admits for its dtypes, and count >= 1, numSrcs >= 1.
void reduceFloat(Kernel kernel, DType dtype, const Operands& operands);    // float32, float64
void reduceHalf(Kernel kernel, DType dtype, const Operands& operands);     // float16, bfloat16
void reduceComplex(Kernel kernel, DType dtype, const Operands& operands);  // product, scaled sum
void reduceInteger(Kernel kernel, DType dtype, const Operands& operands);  // integers, bool

}  // namespace taco::data_internal
