// Between select.cc, which decides, and select_kernels.cc, the loops over elements, compiled for
// each instruction set.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "csrc/data/buffer.h"

namespace taco::topk_internal {

inline constexpr uint32_t kSignBit = 0x80000000;
inline constexpr uint32_t kInfinityKey = 0x7f800000;

inline uint32_t keyOf(float value) { return std::bit_cast<uint32_t>(value) & ~kSignBit; }

// The loops stop compacting between two blocks, so this much room beyond `capacity` takes what one
// block can add, and what whole vectors write past the last element.
inline constexpr size_t kBlock = 2048;

// Elements with their indices, which ascend.
struct Found {
  std::unique_ptr<uint32_t[]> indices;
  std::unique_ptr<float[]> values;
  size_t capacity = 0;
  size_t count = 0;

  // What is much too large is given back: a warm-up begins with large k.
  void reserve(size_t wanted) {
    if (wanted <= capacity && wanted >= capacity / 4) return;
    indices = std::make_unique_for_overwrite<uint32_t[]>(wanted + 2 * kBlock);
    values = std::make_unique_for_overwrite<float[]>(wanted + 2 * kBlock);
    capacity = wanted;
  }
};

// residual += gradient, without NaN's payloads; `found` becomes those of key >= minKey. False where
// they are more than found.capacity: then only the sums count.
bool accumulate(ConstBuffer gradient, float* residual, uint32_t minKey, Found& found);

// Only the second half of that.
bool compact(const float* values, size_t count, uint32_t minKey, Found& found);

// `found` becomes those of key > kthKey, and the first `ties` of key == kthKey: in the first place
// (there are at most found.capacity), or of what `found` held.
void choose(const float* values, size_t count, uint32_t kthKey, size_t ties, Found& found);
void chooseAgain(uint32_t kthKey, size_t ties, Found& found);

// The largest key of all; 0 of none.
uint32_t largestKey(const float* values, size_t count);

// Rounds to float16, within its finite numbers where the value is finite; `values` becomes what was
// lost, 0 where the value is not finite. See select.h.
void roundToFloat16(float* values, size_t count, uint8_t* halves);

}  // namespace taco::topk_internal
