// What one rank sends in a TopK all-reduce: the k chosen elements of its gradient. As k is fixed,
// so is the size: nobody has to tell anybody how much is coming.
//
//   byte 0        4            ...  4k                          4k + k v    (v = 4 or 2)
//        +--------+--------+ - - +--------+--------+ - - +--------+-----------+
//        | index0 | index1 | ... | value0 | value1 | ... |value k-1| 0 .. 2 B  |
//        +--------+--------+ - - +--------+--------+ - - +--------+-----------+
//          uint32, strictly         float32, or IEEE binary16       zeros, up to a
//          ascending                in the order of the indices     multiple of 4
//
// All numbers are little-endian, as in memory. A payload may lie at any address.
#pragma once

#include <cstddef>
#include <cstdint>

namespace taco {

enum class TopkValues : uint8_t { kFloat32, kFloat16 };

struct PayloadLayout {
  size_t k = 0;
  TopkValues values = TopkValues::kFloat32;

  size_t valueBytes() const { return values == TopkValues::kFloat32 ? 4 : 2; }
  size_t valueOffset() const { return k * sizeof(uint32_t); }
  size_t bytes() const { return (valueOffset() + k * valueBytes() + 3) / 4 * 4; }
};

// How many of `count` elements are chosen: floor(ratio * count), but at least 1; 0 of none. The
// ratio lies in (0, 1]; anything else is kInvalidArgument.
size_t topkCount(size_t count, double ratio);

}  // namespace taco
