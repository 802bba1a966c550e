#include "cuda/device.h"

#include <cuda_runtime_api.h>

namespace taco::cuda {
namespace {

int multiprocessorCount(int* count) {
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  return cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device);
}

int copyAsync(void* dst, const void* src, size_t bytes, void* stream) {
  return cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream));
}

}  // namespace

const DeviceApi& runtimeDeviceApi() {
  static const DeviceApi api = {
      .deviceCount = [](int* count) -> int { return cudaGetDeviceCount(count); },
      .multiprocessorCount = multiprocessorCount,
      .allocate = [](void** pointer, size_t bytes) -> int { return cudaMalloc(pointer, bytes); },
      .release = [](void* pointer) -> int { return cudaFree(pointer); },
      .copyAsync = copyAsync,
      .synchronize = [](void* stream) -> int {
        return cudaStreamSynchronize(static_cast<cudaStream_t>(stream));
      },
      .errorText = [](int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); },
  };
  return api;
}

}  // namespace taco::cuda
