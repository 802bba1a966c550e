// Elements to reduce: a third each random bits (with NaNs, infinities and denormals among them),
// ordinary numbers that round, and the values where mistakes hide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "csrc/data/dtype.h"
#include "tests/csrc/data/reduce_reference.h"

namespace taco::testing {

// Bit patterns of `width` bytes: zeros, ones, denormals, largest finite numbers, infinities, NaNs
// quiet, signalling and negative, with payloads; for integers these are extremes and their
// neighbours.
inline std::vector<uint64_t> corners(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kComplex64:
      return {0,          0x80000000, 0x3F800000, 0xBF800000, 1,          0x80000001,
              0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000,
              0x7FC00000, 0xFFC00000, 0x7FC01234, 0xFFFFFFFF, 0x7F800001};
    case DType::kFloat64:
    case DType::kComplex128:
      return {0,
              0x8000000000000000,
              0x3FF0000000000000,
              0xBFF0000000000000,
              1,
              0x000FFFFFFFFFFFFF,
              0x7FEFFFFFFFFFFFFF,
              0xFFEFFFFFFFFFFFFF,
              0x7FF0000000000000,
              0xFFF0000000000000,
              0x7FF8000000000000,
              0xFFF8000000001234,
              0x7FF0000000000001};
    case DType::kFloat16:
      return {0,      0x8000, 0x3C00, 0xBC00, 1,      0x8001, 0x03FF, 0x0400, 0x7BFF,
              0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFE00, 0x7C01, 0xFFFF, 0x0002, 0x5000};
    case DType::kBFloat16:
      return {0,      0x8000, 0x3F80, 0xBF80, 1,      0x8001, 0x007F, 0x0080, 0x7F7F,
              0xFF7F, 0x7F80, 0xFF80, 0x7FC0, 0xFFC0, 0x7F81, 0xFFFF, 0x3B80, 0x4380};
    case DType::kBool:
      return {0, 0, 0, 1, 2, 128, 255};
    default:  // integers: cut to their width
      return {0,
              1,
              2,
              ~0ull,
              ~1ull,
              0x7F,
              0x80,
              0x7FFF,
              0x8000,
              0x7FFFFFFF,
              0x80000000,
              0x7FFFFFFFFFFFFFFF,
              0x8000000000000000};
  }
}

inline Bytes makeInput(DType dtype, size_t count, uint32_t seed) {
  std::mt19937_64 random(seed);
  const size_t parts = isComplex(dtype) ? 2 : 1;
  const size_t width = elementBytes(dtype) / parts;
  const std::vector<uint64_t> special = corners(dtype);
  std::normal_distribution<double> ordinary(0.0, 3.0);
  Bytes bytes(count * parts * width);
  for (size_t i = 0; i < count * parts; ++i) {
    uint64_t bits = random();
    const uint64_t kind = random() % 3;
    if (kind == 0) bits = special[bits % special.size()];
    if (kind == 1) {
      const double value = ordinary(random);
      if (width == 8 && (isFloatingPoint(dtype) || isComplex(dtype))) {
        std::memcpy(&bits, &value, 8);
      } else if (dtype == DType::kFloat32 || dtype == DType::kComplex64) {
        const float narrow = static_cast<float>(value);
        bits = 0;
        std::memcpy(&bits, &narrow, 4);
      } else if (dtype == DType::kFloat16) {
        bits = ReferenceFloat16::encode(static_cast<float>(value));
      } else if (dtype == DType::kBFloat16) {
        bits = ReferenceBFloat16::encode(static_cast<float>(value));
      }
    }
    std::memcpy(bytes.data() + i * width, &bits, width);  // little endian, as all our machines
  }
  return bytes;
}

}  // namespace taco::testing
