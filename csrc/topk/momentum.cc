#include "csrc/topk/momentum.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "csrc/data/half.h"

namespace taco {
namespace {

// Runs each(i, the i-th element as a float) over a buffer of any alignment.
template <typename Stored, typename FromStored, typename Each>
void overElements(ConstBuffer buffer, FromStored fromStored, Each each) {
  for (size_t i = 0; i < buffer.count; ++i) {
    Stored stored;
    std::memcpy(&stored, buffer.bytePointer() + i * sizeof(Stored), sizeof(Stored));
    each(i, fromStored(stored));
  }
}

template <typename Each>
void overFloats(ConstBuffer buffer, Each each) {
  switch (buffer.dtype) {
    case DType::kFloat16: return overElements<uint16_t>(buffer, fromFloat16, each);
    case DType::kBFloat16: return overElements<uint16_t>(buffer, fromBFloat16, each);
    default: return overElements<float>(buffer, [](float value) { return value; }, each);
  }
}

// What is too large for float16 is sent as its largest number: an infinity would cost all ranks the
// step.
float saturated(float value) {
  return std::isfinite(value) ? std::clamp(value, -65504.0f, 65504.0f) : value;
}

template <typename Stored>
void put(Buffer buffer, size_t i, Stored value) {
  std::memcpy(buffer.bytePointer() + i * sizeof(Stored), &value, sizeof(Stored));
}

}  // namespace

void addMomentum(float* momentum, ConstBuffer gradient, double factor) {
  const float m = static_cast<float>(factor);
  overFloats(gradient, [&](size_t i, float value) { momentum[i] = m * momentum[i] + value; });
}

void maskSent(float* momentum, const void* payload, const PayloadLayout& layout) {
  for (size_t j = 0; j < layout.k; ++j) {
    uint32_t index;
    std::memcpy(&index, static_cast<const char*>(payload) + j * sizeof(index), sizeof(index));
    momentum[index] = 0;
  }
}

void flushResidual(Buffer values, ConstBuffer gradient, float* residual) {
  overFloats(gradient, [&](size_t i, float value) {
    const float sum = value + residual[i];
    switch (values.dtype) {
      case DType::kFloat16: put(values, i, toFloat16(saturated(sum))); break;
      case DType::kBFloat16: put(values, i, toBFloat16(sum)); break;
      default: put(values, i, sum);
    }
    residual[i] = 0;
  });
}

bool allFinite(ConstBuffer values) {
  bool finite = true;
  overFloats(values, [&](size_t, float value) { finite &= std::isfinite(value); });
  return finite;
}

}  // namespace taco
