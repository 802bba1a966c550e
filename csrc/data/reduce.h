// Reductions on host memory: dst[i] = post(op over s of pre(srcs[s][i])), always applied in the
// order srcs[0], srcs[1], ..., so that every rank that holds the sources in the same order gets the
// same bits, whatever its CPU's vector width and however its buffers are aligned.
//
// Numbers:
// - float16 and bfloat16 accumulate in float32 over all sources and are rounded once, to nearest
//   even. float32, float64 and complex accumulate in their own precision, without fused
//   multiply-add and without reassociation.
// - A NaN in a source makes the result NaN, in MIN and MAX too (as torch.minimum does). A NaN
// result
//   is the positive quiet NaN without payload: which operand's payload survives an addition
//   differs between instructions, and would be the one bit pattern not the same everywhere.
// - Integers wrap around; their AVG truncates toward zero.
// - bool: any byte but 0 is true; what is stored is 0 or 1.
// - One source and nothing to scale or divide: a copy, NaN payloads included.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>

#include "csrc/data/copy.h"
#include "csrc/data/dtype.h"
#include "csrc/data/reduce_op.h"

namespace taco {

// What one reduction does at one level. An all-reduce over two levels (inside the node, then across
// nodes) applies its operation twice: PREMUL_SUM multiplies at the first level only, AVG divides at
// the last level only. Make them with firstLevel, lastLevel, middleLevel and onlyLevel.
struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  DType dtype = DType::kFloat32;
  // PREMUL_SUM where scaleInputs: every input is multiplied by this factor, taken in the precision
  // of the accumulation (float32 for the half types). Its imaginary part is for complex dtypes;
  // where it is 0, the two components are scaled and not multiplied out, so that inf does not
  // become NaN.
  bool scaleInputs = false;
  double preScaleReal = 1;
  double preScaleImag = 0;
  // AVG: what the sum is divided by, the number of ranks in all; 1 = not at this level.
  int64_t divisor = 1;
};

// `factor` counts for PREMUL_SUM, `worldSize` for AVG; other operations ignore them. Each throws
// kUnsupported where `op` has no meaning for `dtype`, and kInvalidArgument where worldSize < 1 or a
// factor with an imaginary part meets a real dtype.
Reduction firstLevel(ReduceOp op, DType dtype, std::complex<double> factor = 1.0);
Reduction middleLevel(ReduceOp op, DType dtype);
Reduction lastLevel(ReduceOp op, DType dtype, int64_t worldSize);
Reduction onlyLevel(ReduceOp op, DType dtype, int64_t worldSize, std::complex<double> factor = 1.0);

// `dst` may be exactly one of the sources; otherwise nothing overlaps (sources may be the same
// memory as one another). numSrcs >= 1. Any alignment.
void reduce(void* dst, const void* const* srcs, int numSrcs, size_t count,
            const Reduction& reduction);

// The same result written to several destinations in one pass; each may be exactly one of the
// sources, and the result then goes back into the lines just read, which change owner once. It is
// the inner loop of the all-reduce in shared memory.
void reducePush(void* const* dsts, int numDsts, const void* const* srcs, int numSrcs, size_t count,
                const Reduction& reduction);

}  // namespace taco
