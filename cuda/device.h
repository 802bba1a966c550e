// The seam to the CUDA runtime: the calls that host code of cuda/ makes, as a table of functions with
// plain types. Host code that takes a DeviceApi needs no CUDA header and runs in a test on a machine
// without a GPU, over a table of the test's own.
#pragma once

#include <cstddef>

namespace taco::cuda {

// Results are cudaError_t values: 0 is success, errorText() says what another one means. Streams are
// cudaStream_t. This runtime shares each device's primary context with torch's, so torch's streams and
// pointers may be passed in.
struct DeviceApi {
  int (*deviceCount)(int* count);
  int (*multiprocessorCount)(int* count);  // of the calling thread's current device
  int (*allocate)(void** pointer, size_t bytes);
  int (*release)(void* pointer);
  int (*copyAsync)(void* dst, const void* src, size_t bytes, void* stream);  // direction from the pointers
  int (*synchronize)(void* stream);
  const char* (*errorText)(int error);
};

// The runtime that is linked into libtaco_cuda.so.
const DeviceApi& runtimeDeviceApi();

}  // namespace taco::cuda
