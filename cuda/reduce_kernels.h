#pragma once

#include <cstddef>

#include "csrc/data/dtype.h"
#include "cuda/device.h"

namespace taco::cuda {

// More sources than ranks that share a node today; a kernel argument, so a fixed number.
inline constexpr int kMaxSources = 8;

// dst[i] = sources[0][i] + sources[1][i] + ..., in that order, in device memory.
struct SumCall {
  void* dst = nullptr;  // may be one of the sources
  const void* sources[kMaxSources] = {};
  int sourceCount = 0;
  size_t count = 0;  // elements
  DType dtype = DType::kFloat32;
  void* stream = nullptr;
};

// Enqueues the sum on the call's stream and returns the launch's cudaError_t. Throws taco::Error for a
// dtype without a kernel or a number of sources outside 1 to kMaxSources, before anything is enqueued.
int enqueueSum(const SumCall& call, const DeviceApi& device);

}  // namespace taco::cuda
