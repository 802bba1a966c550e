#include "csrc/data/reduce.h"

#include <string>

#include "csrc/base/error.h"
#include "csrc/data/reduce_kernels.h"

namespace taco {
namespace {

using data_internal::Kernel;
using data_internal::Operands;

void checkMeaning(ReduceOp op, DType dtype) {
  if (auto why = whyUnsupported(op, dtype)) throw Error(ErrorCode::kUnsupported, *why);
}

Reduction checked(ReduceOp op, DType dtype) {
  checkMeaning(op, dtype);
  Reduction reduction;
  reduction.op = op;
  reduction.dtype = dtype;
  return reduction;
}

void setFactor(Reduction& reduction, std::complex<double> factor) {
  if (reduction.op != ReduceOp::kPremulSum) return;
  if (factor.imag() != 0 && !isComplex(reduction.dtype)) {
    throw Error(ErrorCode::kInvalidArgument,
                "the factor of PREMUL_SUM has the imaginary part " + std::to_string(factor.imag()) +
                    ", but the tensor is " + name(reduction.dtype) + ": pass a real factor");
  }
  reduction.scaleInputs = true;
  reduction.preScaleReal = factor.real();
  reduction.preScaleImag = factor.imag();
}

void setDivisor(Reduction& reduction, int64_t worldSize) {
  if (worldSize < 1) {
    throw Error(ErrorCode::kInvalidArgument, "worldSize is " + std::to_string(worldSize) +
                                                 ": a reduction needs at least 1 rank");
  }
  if (reduction.op == ReduceOp::kAvg) reduction.divisor = worldSize;
}

Kernel kernelOf(const Reduction& reduction) {
  switch (reduction.op) {
    case ReduceOp::kSum:
      return Kernel::kSum;
    case ReduceOp::kAvg:
      return reduction.divisor == 1 ? Kernel::kSum : Kernel::kSumDivide;
    case ReduceOp::kPremulSum:
      return reduction.scaleInputs ? Kernel::kScaledSum : Kernel::kSum;
    case ReduceOp::kProduct:
      return Kernel::kProduct;
    case ReduceOp::kMin:
      return Kernel::kMin;
    case ReduceOp::kMax:
      return Kernel::kMax;
    case ReduceOp::kBand:
      return Kernel::kAnd;
    case ReduceOp::kBor:
      return Kernel::kOr;
    case ReduceOp::kBxor:
      return Kernel::kXor;
  }
  throw Error(ErrorCode::kInvalidArgument,
              std::string("the reduction is unknown: ") + name(reduction.op));
}

bool isPlainCopy(Kernel kernel, DType dtype, int numSrcs) {
  return numSrcs == 1 && kernel != Kernel::kSumDivide && kernel != Kernel::kScaledSum &&
         dtype != DType::kBool;
}

// Complex numbers are pairs of real ones except where components mix.
void runComplex(Kernel kernel, DType dtype, Operands operands) {
  const bool mixes =
      kernel == Kernel::kProduct || (kernel == Kernel::kScaledSum && operands.scaleImag != 0);
  if (mixes) return data_internal::reduceComplex(kernel, dtype, operands);
  operands.count *= 2;
  const DType part = dtype == DType::kComplex64 ? DType::kFloat32 : DType::kFloat64;
  data_internal::reduceFloat(kernel, part, operands);
}

}  // namespace

Reduction firstLevel(ReduceOp op, DType dtype, std::complex<double> factor) {
  Reduction reduction = checked(op, dtype);
  setFactor(reduction, factor);
  return reduction;
}

Reduction middleLevel(ReduceOp op, DType dtype) { return checked(op, dtype); }

Reduction lastLevel(ReduceOp op, DType dtype, int64_t worldSize) {
  Reduction reduction = checked(op, dtype);
  setDivisor(reduction, worldSize);
  return reduction;
}

Reduction onlyLevel(ReduceOp op, DType dtype, int64_t worldSize, std::complex<double> factor) {
  Reduction reduction = firstLevel(op, dtype, factor);
  setDivisor(reduction, worldSize);
  return reduction;
}

void reduce(void* dst, const void* const* srcs, int numSrcs, size_t count,
            const Reduction& reduction) {
  reducePush(&dst, 1, srcs, numSrcs, count, reduction);
}

void reducePush(void* const* dsts, int numDsts, const void* const* srcs, int numSrcs, size_t count,
                const Reduction& reduction) {
  const DType dtype = reduction.dtype;
  checkMeaning(reduction.op, dtype);
  if (numSrcs < 1 || numDsts < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "a reduction needs a source and a destination, but was given " +
                    std::to_string(numSrcs) + " and " + std::to_string(numDsts));
  }
  if (reduction.divisor < 1) {
    throw Error(ErrorCode::kInvalidArgument, "the divisor of AVG is " +
                                                 std::to_string(reduction.divisor) +
                                                 ": it is the number of ranks and so at least 1");
  }
  if (count == 0) return;

  const Kernel kernel = kernelOf(reduction);
  if (isPlainCopy(kernel, dtype, numSrcs)) {
    for (int t = 0; t < numDsts; ++t) copyBytes(dsts[t], srcs[0], count * elementBytes(dtype));
    return;
  }
  const Operands operands{dsts,
                          numDsts,
                          srcs,
                          numSrcs,
                          count,
                          reduction.preScaleReal,
                          reduction.preScaleImag,
                          reduction.divisor};
  if (dtype == DType::kFloat32 || dtype == DType::kFloat64) {
    data_internal::reduceFloat(kernel, dtype, operands);
  } else if (isFloatingPoint(dtype)) {
    data_internal::reduceHalf(kernel, dtype, operands);
  } else if (isComplex(dtype)) {
    runComplex(kernel, dtype, operands);
  } else {
    data_internal::reduceInteger(kernel, dtype, operands);
  }
}

}  // namespace taco
