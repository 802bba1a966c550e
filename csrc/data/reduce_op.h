// The operations a reduction can apply, with torch's names, and which of them have a meaning for
// which dtype.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "csrc/data/dtype.h"

namespace taco {

enum class ReduceOp : uint8_t {
  kSum,        // bool: OR
  kAvg,        // sum divided by the number of ranks; integers truncate toward zero
  kPremulSum,  // every input times a factor, then the sum
  kProduct,    // bool: AND
  kMin,        // bool: AND; NaN wins
  kMax,        // bool: OR; NaN wins
  kBand,
  kBor,
  kBxor,
};

// How many enumerators there are; they are numbered 0 .. kNumReduceOps - 1.
inline constexpr int kNumReduceOps = 9;

// "SUM", "AVG", "PREMUL_SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR".
const char* name(ReduceOp op);

// Empty where `op` has a meaning for `dtype`; otherwise one sentence that names both and says why.
std::optional<std::string> whyUnsupported(ReduceOp op, DType dtype);

}  // namespace taco
