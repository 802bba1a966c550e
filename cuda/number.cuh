// Numbers as bits: keys that order magnitudes, and the half types. Conversions are spelled out in
// integers, so that every bit is the host's (csrc/data/half.h), NaN included, for which the GPU's
// own instructions have another pattern.
#pragma once

#include <cstdint>

#include "cuda/launch.h"

namespace taco::cuda {

inline constexpr uint32_t kKeyMask = 0x7fffffff;
inline constexpr uint32_t kInfinityKey = 0x7f800000;
inline constexpr uint32_t kQuietNan = 0x7fc00000;

// A float32 without its sign: denormals < normal numbers < infinity < NaN.
__device__ __forceinline__ uint32_t keyOf(uint32_t bits) { return bits & kKeyMask; }

__device__ __forceinline__ bool isFinite(uint32_t bits) { return keyOf(bits) < kInfinityKey; }

// The bits of a result: every NaN is the positive quiet one.
__device__ __forceinline__ uint32_t resultBits(float value) {
  const uint32_t bits = __float_as_uint(value);
  return keyOf(bits) > kInfinityKey ? kQuietNan : bits;
}

__device__ __forceinline__ float fromFloat16Bits(uint32_t half) {
  const uint32_t sign = (half & 0x8000) << 16;
  const uint32_t rest = half & 0x7fff;
  if (rest >= 0x7c00) return __uint_as_float(sign | kInfinityKey | (rest & 0x3ff) << 13);
  // Moved into place, the number is 2^-112 of itself, denormals too.
  return __uint_as_float(__float_as_uint(__uint_as_float(rest << 13) * 0x1p112f) | sign);
}

// To nearest even.
__device__ __forceinline__ uint16_t toFloat16Bits(uint32_t bits) {
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t key = keyOf(bits);
  if (key > kInfinityKey) return static_cast<uint16_t>(sign | 0x7e00 | (key >> 13 & 0x1ff));
  if (key >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // rounds to 65536 or more
  if (key < 0x38800000) {
    // Below float16's normal numbers: an addition to 0.5 rounds at their last bit, 2^-24.
    const uint32_t sum = __float_as_uint(__uint_as_float(key) + 0.5f);
    return static_cast<uint16_t>(sign | (sum - 0x3f000000));
  }
  const uint32_t rounded = key + 0xfff + (key >> 13 & 1);
  return static_cast<uint16_t>(sign | (rounded - 0x38000000) >> 13);
}

// To nearest even; NaN is one already, by resultBits().
__device__ __forceinline__ uint16_t toBFloat16Bits(uint32_t bits) {
  if (keyOf(bits) > kInfinityKey) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// What a buffer of gradients holds.
struct Float32 {
  using Storage = uint32_t;
  __device__ static float widen(Storage bits) { return __uint_as_float(bits); }
  __device__ static Storage narrow(uint32_t bits) { return bits; }
};
struct Float16 {
  using Storage = uint16_t;
  __device__ static float widen(Storage bits) { return fromFloat16Bits(bits); }
  __device__ static Storage narrow(uint32_t bits) { return toFloat16Bits(bits); }
};
struct BFloat16 {
  using Storage = uint16_t;
  __device__ static float widen(Storage bits) {
    return __uint_as_float(static_cast<uint32_t>(bits) << 16);
  }
  __device__ static Storage narrow(uint32_t bits) { return toBFloat16Bits(bits); }
};

}  // namespace taco::cuda
