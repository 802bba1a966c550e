// The element types a buffer can hold. Arithmetic types carry torch's names; whatever we only move
// and never add up (float8 variants, quantised types, complex32) travels as opaque elements of
// 1, 2, 4, 8 or 16 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace taco {

enum class DType : uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kComplex64,
  kComplex128,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kBool,
  kBytes1,
  kBytes2,
  kBytes4,
  kBytes8,
  kBytes16,
};

// How many enumerators there are; they are numbered 0 .. kNumDTypes - 1, so that tables and tests
// can run over all of them.
inline constexpr int kNumDTypes = 20;

size_t elementBytes(DType dtype);

// "float32", "bfloat16", ... as torch spells them; "opaque 1-byte", ... for the kBytesN.
const char* name(DType dtype);

bool isFloatingPoint(DType dtype);  // real floating point: complex types are not
bool isComplex(DType dtype);
bool isInteger(DType dtype);  // bool is not
bool isOpaque(DType dtype);

}  // namespace taco
