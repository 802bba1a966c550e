// What select() and scatterAdd() must do, once more in plain scalar code: a stable sort, one
// element after the other.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "csrc/data/buffer.h"
#include "csrc/data/half.h"
#include "csrc/topk/payload.h"
#include "csrc/topk/select.h"

namespace taco::testing {

using Bytes = std::vector<uint8_t>;

inline float widened(DType dtype, const void* from) {
  if (dtype == DType::kFloat32) {
    float value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, from, sizeof half);
  return dtype == DType::kFloat16 ? fromFloat16(half) : fromBFloat16(half);
}

inline void narrowed(DType dtype, float value, void* to) {
  if (dtype == DType::kFloat32) {
    std::memcpy(to, &value, sizeof value);
    return;
  }
  const uint16_t half = dtype == DType::kFloat16 ? toFloat16(value) : toBFloat16(value);
  std::memcpy(to, &half, sizeof half);
}

// Elements of any dtype from numbers.
inline Bytes stored(DType dtype, const std::vector<float>& values) {
  Bytes bytes(values.size() * elementBytes(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    narrowed(dtype, values[i], bytes.data() + i * elementBytes(dtype));
  }
  return bytes;
}

inline float withoutNanPayload(float value) {
  return std::isnan(value) ? std::numeric_limits<float>::quiet_NaN() : value;
}

inline uint32_t magnitudeBits(float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffffu; }

struct Selected {
  Bytes payload;
  std::vector<float> residual;
  bool finite = true;
};

inline float finiteFloat16Limit(float value) {
  const float magnitude = std::fabs(value);
  return magnitude >= 0x1p29f && magnitude < 0x1p30f ? 65472.0f : 65504.0f;
}

inline std::vector<float> referenceSums(ConstBuffer gradient, std::vector<float> residual) {
  for (size_t i = 0; i < gradient.count; ++i) {
    const char* from = gradient.bytePointer() + i * elementBytes(gradient.dtype);
    residual[i] = withoutNanPayload(residual[i] + widened(gradient.dtype, from));
  }
  return residual;
}

// All indices, those of the largest magnitudes first.
inline std::vector<uint32_t> referenceOrder(const std::vector<float>& sums) {
  std::vector<uint32_t> order(sums.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return magnitudeBits(sums[a]) > magnitudeBits(sums[b]);
  });
  return order;
}

inline Selected referenceChoice(const std::vector<float>& sums, std::vector<uint32_t> order,
                                PayloadLayout layout) {
  order.resize(layout.k);
  std::sort(order.begin(), order.end());
  Selected selected{Bytes(layout.bytes()), sums, true};
  for (size_t j = 0; j < layout.k; ++j) {
    float& rest = selected.residual[order[j]];
    const float value = rest;
    uint8_t* const to = selected.payload.data() + layout.valueOffset() + j * layout.valueBytes();
    std::memcpy(selected.payload.data() + j * 4, &order[j], 4);
    selected.finite &= std::isfinite(value);
    if (layout.values == TopkValues::kFloat32) {
      std::memcpy(to, &value, 4);
      rest = 0;
    } else {
      const float limit = finiteFloat16Limit(value);
      const float sent = std::isfinite(value) ? std::clamp(value, -limit, limit) : value;
      const uint16_t half = toFloat16(sent);
      std::memcpy(to, &half, 2);
      rest = std::isfinite(value) ? value - fromFloat16(half) : 0;
    }
  }
  return selected;
}

inline Selected referenceSelect(ConstBuffer gradient, const std::vector<float>& residual,
                                PayloadLayout layout) {
  const std::vector<float> sums = referenceSums(gradient, residual);
  return referenceChoice(sums, referenceOrder(sums), layout);
}

inline bool sameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// What `selector` makes of them.
inline Selected selected(Selector& selector, ConstBuffer gradient, std::vector<float> residual,
                         PayloadLayout layout) {
  Selected result{Bytes(layout.bytes(), 0xab), std::move(residual), true};
  result.finite = selector.select(gradient, result.residual.data(), layout, result.payload.data());
  return result;
}

inline bool same(const Selected& a, const Selected& b) {
  return a.payload == b.payload && sameBits(a.residual, b.residual) && a.finite == b.finite;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

inline uint32_t indexOf(const void* payload, size_t j) {
  uint32_t index;
  std::memcpy(&index, static_cast<const char*>(payload) + 4 * j, 4);
  return index;
}

inline float valueOf(const void* payload, PayloadLayout layout, size_t j) {
  const DType dtype = layout.values == TopkValues::kFloat32 ? DType::kFloat32 : DType::kFloat16;
  const char* const values = static_cast<const char*>(payload) + layout.valueOffset();
  return widened(dtype, values + j * layout.valueBytes());
}

// The elements of `dense`, as it should become.
inline Bytes referenceScatterAdd(const std::vector<Bytes>& payloads, PayloadLayout layout,
                                 size_t count, DType dtype, int64_t divisor) {
  std::vector<float> sum(count);
  for (const Bytes& payload : payloads) {
    for (size_t j = 0; j < layout.k; ++j) {
      sum[indexOf(payload.data(), j)] += valueOf(payload.data(), layout, j);
    }
  }
  for (float& value : sum) value = withoutNanPayload(value / static_cast<float>(divisor));
  return stored(dtype, sum);
}

}  // namespace taco::testing
