#pragma once

#include <cstddef>

namespace taco {

constexpr size_t ceilDiv(size_t a, size_t b) { return (a + b - 1) / b; }
constexpr size_t roundUp(size_t value, size_t unit) { return ceilDiv(value, unit) * unit; }

}  // namespace taco
