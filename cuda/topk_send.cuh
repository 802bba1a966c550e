// The selection's last piece: one chosen element.
#pragma once

#include <cstdint>

#include "cuda/launch.h"
#include "cuda/number.cuh"
#include "cuda/topk_collect.cuh"

namespace taco::cuda {

// Puts an element into the payload and takes it out of the residual.
template <TopkValues kValues>
__device__ __forceinline__ void send(const SelectArguments& a, uint32_t position, uint32_t index,
                                     uint32_t bits) {
  a.payloadIndices[position] = index;
  if (!isFinite(bits)) atomicOr(a.found, kFoundNonFinite);
  if constexpr (kValues == TopkValues::kFloat32) {
    static_cast<uint32_t*>(a.payloadValues)[position] = bits;
    a.residual[index] = 0;
  } else {
    auto* const values = static_cast<uint16_t*>(a.payloadValues);
    // Finite values saturate, so that the remainder is exact: see csrc/topk/select.h.
    const uint32_t key = keyOf(bits);
    const bool isMultipleOf64 = key >= 0x4e000000 && key < 0x4e800000;  // 2^29 to 2^30
    const uint32_t largest = isMultipleOf64 ? 0x477fc000 : 0x477fe000;  // 65472, 65504
    const bool saturates = isFinite(bits) && key > largest;
    const uint16_t half = toFloat16Bits(saturates ? (bits & ~kKeyMask) | largest : bits);
    values[position] = half;
    a.residual[index] =
        isFinite(bits) ? __float_as_uint(__uint_as_float(bits) - fromFloat16Bits(half)) : 0;
    if (position == a.k - 1 && a.k % 2 == 1) values[a.k] = 0;  // up to a multiple of 4 bytes
  }
}

}  // namespace taco::cuda
