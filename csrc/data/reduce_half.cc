// float16 and bfloat16: widened to float32, which is exact, combined over all sources, and rounded
// once to nearest even. The NaN of the result is canonical already (see FloatOp::after).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "csrc/data/reduce_half.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "csrc/data/reduce_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace taco::data_internal {
namespace HWY_NAMESPACE {

#if HWY_ARCH_X86  // elsewhere vectors may not be members

// Two neighbours at a time: a word of memory holds an even and an odd element, and a shift and a
// mask take them apart without moving anything across lanes. Half again as fast as BFloat16.
template <class V>
struct EvenOdd {
  V even;
  V odd;
};

struct BFloat16Pair {
  using Lane = float;
  static constexpr size_t kBytes = 4;

  template <class D>
  static HWY_INLINE EvenOdd<hn::Vec<D>> load(D d, const uint8_t* from) {
    const hn::Rebind<uint32_t, D> d32;
    const auto both = loadAnywhere(d32, from);
    return {hn::BitCast(d, hn::ShiftLeft<16>(both)),
            hn::BitCast(d, hn::And(both, hn::Set(d32, 0xFFFF0000u)))};
  }
  template <class D>
  static HWY_INLINE void store(D /*d*/, const EvenOdd<hn::Vec<D>>& value, uint8_t* to) {
    const hn::Rebind<uint32_t, D> d32;
    const auto even = hn::ShiftRight<16>(roundedToUpperHalf(d32, value.even));
    const auto odd = hn::And(roundedToUpperHalf(d32, value.odd), hn::Set(d32, 0xFFFF0000u));
    storeAnywhere(d32, hn::Or(even, odd), to);
  }
};

// An Op of the shared loop applied to both.
template <class Op>
struct Both {
  Op op;

  template <class D, class V>
  HWY_INLINE EvenOdd<V> before(D d, const EvenOdd<V>& x) const {
    return {op.before(d, x.even), op.before(d, x.odd)};
  }
  template <class D, class V>
  HWY_INLINE EvenOdd<V> combine(D d, const EvenOdd<V>& a, const EvenOdd<V>& x) const {
    return {op.combine(d, a.even, x.even), op.combine(d, a.odd, x.odd)};
  }
  template <class D, class V>
  HWY_INLINE EvenOdd<V> after(D d, const EvenOdd<V>& result) const {
    return {op.after(d, result.even), op.after(d, result.odd)};
  }
};

struct RunBFloat16 {
  static HWY_INLINE Operands pairsOf(const Operands& operands) {
    Operands pairs = operands;
    pairs.count = operands.count / 2;
    return pairs;
  }
  // The element that is left when the count is odd.
  template <class Op>
  static HWY_INLINE void last(const Op& op, const Operands& operands) {
    if (operands.count % 2 == 0) return;
    Loop<BFloat16, Op, 0>{op, operands}.template ragged<1>(operands.count - 1, operands.count);
  }
  template <class Op>
  static HWY_INLINE void few(const Op& op, const Operands& operands) {
    runFewSrcs<BFloat16Pair>(Both<Op>{op}, pairsOf(operands));
    last(op, operands);
  }
  template <class Op>
  static HWY_INLINE void any(const Op& op, const Operands& operands) {
    runAnySrcs<BFloat16Pair>(Both<Op>{op}, pairsOf(operands));
    last(op, operands);
  }
};

#else
using RunBFloat16 = RunStorage<BFloat16>;
#endif

void reduceHalfTarget(Kernel kernel, bool isBFloat16, const Operands& operands) {
  if (isBFloat16) {
    runFloatKernel<float, RunBFloat16>(kernel, operands);
  } else {
    runFloatKernel<float, RunStorage<Float16>>(kernel, operands);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace taco::data_internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace taco::data_internal {

HWY_EXPORT(reduceHalfTarget);

void reduceHalf(Kernel kernel, DType dtype, const Operands& operands) {
  HWY_DYNAMIC_DISPATCH(reduceHalfTarget)(kernel, dtype == DType::kBFloat16, operands);
}

}  // namespace taco::data_internal
#endif
