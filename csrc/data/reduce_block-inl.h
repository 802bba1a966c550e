// The loop for the operations that are rarely on anyone's critical path (integer product and
// minimum, complex product, ...): blocks small enough for the L1 cache are copied next to the
// accumulators, and plain C++ that the compiler vectorises for each target combines the two.
// Working on copies makes alignment and aliasing a matter of memcpy.

// The toggling include guard of Highway: once for every target.
#if defined(TACO_CSRC_DATA_REDUCE_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TACO_CSRC_DATA_REDUCE_BLOCK_INL_H_
#undef TACO_CSRC_DATA_REDUCE_BLOCK_INL_H_
#else
#define TACO_CSRC_DATA_REDUCE_BLOCK_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "csrc/data/reduce_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace taco::data_internal {
namespace HWY_NAMESPACE {

constexpr size_t kBlockBytes = 2048;

// `Op` acts on `n` values of type T at once: before(T* x, n), combine(T* acc, const T* x, n),
// after(T* acc, n). `valuesPerElement`: 2 for complex numbers, whose values lie re, im, re, im.
template <typename T, class Op>
HWY_NOINLINE void runBlocks(const Op& op, const Operands& operands, size_t valuesPerElement = 1) {
  constexpr size_t kBlock = kBlockBytes / sizeof(T);
  alignas(64) T acc[kBlock];
  alignas(64) T next[kBlock];
  const size_t count = operands.count * valuesPerElement;
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t n = HWY_MIN(kBlock, count - begin);
    const size_t at = begin * sizeof(T);
    const size_t bytes = n * sizeof(T);
    std::memcpy(acc, static_cast<const char*>(operands.srcs[0]) + at, bytes);
    op.before(acc, n);
    for (int s = 1; s < operands.numSrcs; ++s) {
      std::memcpy(next, static_cast<const char*>(operands.srcs[s]) + at, bytes);
      op.before(next, n);
      op.combine(acc, next, n);
    }
    op.after(acc, n);
    for (int t = 0; t < operands.numDsts; ++t) {
      std::memcpy(static_cast<char*>(operands.dsts[t]) + at, acc, bytes);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace taco::data_internal
HWY_AFTER_NAMESPACE();

#endif  // the toggling guard
