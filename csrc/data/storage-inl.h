// How elements lie in memory, and how they are computed with: a Storage has load(d, address) and
// store(d, value, address), for any address, of Lanes(d) elements; `Lane` is what they are in
// between. float16 and bfloat16 are widened to float32, which is exact, and rounded to nearest
// even. A NaN that is stored must be canonical (canonicalNan in reduce_ops-inl.h).

// The toggling include guard of Highway: once for every target.
#if defined(TACO_CSRC_DATA_STORAGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TACO_CSRC_DATA_STORAGE_INL_H_
#undef TACO_CSRC_DATA_STORAGE_INL_H_
#else
#define TACO_CSRC_DATA_STORAGE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace taco::data_internal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Lanes(d) values from or to any address. Highway reads a single one through a typed pointer, which
// would have to be aligned to it.
template <class D>
HWY_INLINE hn::Vec<D> loadAnywhere(D d, const uint8_t* from) {
  using T = hn::TFromD<D>;
  if (hn::Lanes(d) == 1) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return hn::Set(d, value);
  }
  return hn::LoadU(d, reinterpret_cast<const T*>(from));
}
template <class D>
HWY_INLINE void storeAnywhere(D d, hn::Vec<D> value, uint8_t* to) {
  using T = hn::TFromD<D>;
  if (hn::Lanes(d) == 1) {
    const T lane = hn::GetLane(value);
    std::memcpy(to, &lane, sizeof(T));
    return;
  }
  hn::StoreU(value, d, reinterpret_cast<T*>(to));
}

// Elements that are computed with as they are.
template <typename T>
struct Native {
  using Lane = T;
  static constexpr size_t kBytes = sizeof(T);

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const uint8_t* from) {
    return loadAnywhere(d, from);
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> value, uint8_t* to) {
    storeAnywhere(d, value, to);
  }
};

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

}  // namespace HWY_NAMESPACE
}  // namespace taco::data_internal
HWY_AFTER_NAMESPACE();

#endif  // the toggling guard
