// The host's selection beside the device's, and gradients for them.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "csrc/topk/select.h"
#include "tests/csrc/catch.h"
#include "tests/cuda/topk_runner.h"

namespace taco::testing {

// Elements that a block works on at a time.
inline constexpr size_t kTile = 4096;

// The host's selector beside the device's, step by step.
class Pair {
 public:
  Pair(DType dtype, size_t count, PayloadLayout layout, size_t shift = 0)
      : dtype_(dtype), layout_(layout), device_(dtype, count, layout, shift), residual_(count) {}

  void setResidual(const std::vector<float>& residual) {
    residual_ = residual;
    device_.setResidual(residual);
  }

  // What both choose; fails the test where they differ, or where anything is lost.
  Selected step(const std::vector<float>& values) {
    const Bytes gradient = stored(dtype_, values);
    const ConstBuffer buffer(gradient.data(), values.size(), dtype_);
    const Selected expected = referenceSelect(buffer, residual_, layout_);
    const Selected device = device_.step(gradient);
    Selected host{Bytes(layout_.bytes()), residual_, true};
    host.finite = host_.select(buffer, host.residual.data(), layout_, host.payload.data());
    INFO(values.size() << " x " << name(dtype_) << ", k " << layout_.k << ", values of "
                       << layout_.valueBytes() << " bytes, step " << ++steps_);
    if (!isSame(device, expected)) FAIL("the device's bytes are not the reference's");
    if (!isSame(device, host)) FAIL("the device's bytes are not the host's");
    residual_ = device.residual;
    return device;
  }
  cuda::SelectReport report() const { return device_.report(); }
  const std::vector<float>& residual() const { return residual_; }

 private:
  static bool isSame(const Selected& a, const Selected& b) {
    return a.payload == b.payload && a.finite == b.finite &&
           stored(DType::kFloat32, a.residual) == stored(DType::kFloat32, b.residual);
  }

  DType dtype_;
  PayloadLayout layout_;
  Selector host_;
  DeviceSelector device_;
  std::vector<float> residual_;
  int steps_ = 0;
};

inline float gaussian(uint64_t bits) {
  float sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<float>(bits >> 16 * i & 0xffff);
  return (sum - 131070.0f) / 37837.0f;
}

inline std::vector<float> gaussians(size_t count, uint64_t seed, float scale = 1) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = scale * gaussian(random());
  return values;
}

inline std::vector<float> generated(size_t count, const std::function<float(size_t)>& value) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = value(i);
  return values;
}

}  // namespace taco::testing
