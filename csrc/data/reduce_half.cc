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

// A bfloat16 is the upper half of a float32. Rounded in integers: the CPU's own conversion flushes
// denormals, Highway's truncates. The result lies in the upper halves, with rubbish below.
template <class D32, class V>
HWY_INLINE hn::Vec<D32> roundedToUpperHalf(D32 d32, V value) {
  const auto bits = hn::BitCast(d32, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
  return hn::Add(hn::Add(bits, hn::Set(d32, 0x7FFFu)), odd);
}

struct BFloat16 {
  using Lane = float;
  static constexpr size_t kBytes = 2;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const uint8_t* from) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::Rebind<uint32_t, D> d32;
    const auto half = loadAnywhere(d16, from);
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, half)));
  }
  template <class D>
  static HWY_INLINE void store(D /*d*/, hn::Vec<D> value, uint8_t* to) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::Rebind<uint32_t, D> d32;
    const hn::Rebind<int32_t, D> dSigned32;
    const auto half = hn::ShiftRight<16>(roundedToUpperHalf(d32, value));
    storeAnywhere(d16, hn::DemoteTo(d16, hn::BitCast(dSigned32, half)), to);
  }
};

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

// Highway converts float16 exactly where the CPU does it (F16C, AVX-512); its emulation elsewhere
// knows neither infinity nor NaN, so there we convert ourselves.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
#define TACO_HARDWARE_FLOAT16 1
#else
#define TACO_HARDWARE_FLOAT16 0
#endif

struct Float16 {
  using Lane = float;
  static constexpr size_t kBytes = 2;

#if TACO_HARDWARE_FLOAT16
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const uint8_t* from) {
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
  }
  template <class D>
  static HWY_INLINE void store(D /*d*/, hn::Vec<D> value, uint8_t* to) {
    const hn::Rebind<hwy::float16_t, D> d16;
    hn::StoreU(hn::DemoteTo(d16, value), d16, reinterpret_cast<hwy::float16_t*>(to));
  }
#else
  // Exponent and mantissa move up by 13 bits. The exponent is then re-biased by 112: once for
  // normal numbers, twice for inf and NaN (31 becomes 255); denormals are integers times 2^-24.
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const uint8_t* from) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::Rebind<int32_t, D> d32;
    const hn::Rebind<uint32_t, D> dUnsigned32;
    const auto half = hn::BitCast(d32, hn::PromoteTo(dUnsigned32, loadAnywhere(d16, from)));
    const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(d32, 0x8000)));
    const auto magnitude = hn::And(half, hn::Set(d32, 0x7FFF));
    const auto bias = hn::Set(d32, 112 << 23);
    const auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), bias);
    const auto special = hn::Add(normal, bias);
    const auto denormal =
        hn::BitCast(d32, hn::Mul(hn::ConvertTo(d, magnitude), hn::Set(d, 1.0f / (1 << 24))));
    const auto finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d32, 0x0400)), denormal, normal);
    const auto bits = hn::IfThenElse(hn::Gt(magnitude, hn::Set(d32, 0x7BFF)), special, finite);
    return hn::BitCast(d, hn::Or(bits, sign));
  }

  // Normal results: add just under half of the last place (half, if the last bit kept is odd) and
  // cut; a carry runs into the exponent, up to inf, as it should. Denormal results: adding 0.5
  // lets the CPU's own addition round at 2^-24, the last place of the denormals.
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> value, uint8_t* to) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::Rebind<int32_t, D> d32;
    const auto bits = hn::BitCast(d32, value);
    const auto magnitude = hn::And(bits, hn::Set(d32, 0x7FFFFFFF));
    const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 0x8000));
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d32, 1));
    const auto normal =
        hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, hn::Set(d32, 0xFFF - (112 << 23))), odd));
    const auto shifted = hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f));
    const auto denormal = hn::Sub(hn::BitCast(d32, shifted), hn::Set(d32, 0x3F000000));
    const auto isNan = hn::Gt(magnitude, hn::Set(d32, 0x7F800000));
    const auto special = hn::IfThenElse(isNan, hn::Set(d32, 0x7E00), hn::Set(d32, 0x7C00));
    // Below 2^-14; from 2^16.
    const auto finite =
        hn::IfThenElse(hn::Lt(magnitude, hn::Set(d32, 113 << 23)), denormal, normal);
    const auto half =
        hn::IfThenElse(hn::Gt(magnitude, hn::Set(d32, (143 << 23) - 1)), special, finite);
    storeAnywhere(d16, hn::DemoteTo(d16, hn::Or(half, sign)), to);
  }
#endif
};

#undef TACO_HARDWARE_FLOAT16

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
