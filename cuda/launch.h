// What the kernel sources use of CUDA beyond its built-in functions. The sources are compiled
// twice: by nvcc, and by the host's compiler behind tests/cuda/simt.h, which defines all of this
// for itself.
#pragma once

#include <cstdint>

#ifndef TACO_SIMT

// Starts a kernel; evaluates to the launch's cudaError_t. (clang-format would take <<< apart.)
// clang-format off
#define TACO_LAUNCH(kernel, blocks, threads, stream, ...)                                        \
  ((kernel)<<<(blocks), (threads), 0, static_cast<cudaStream_t>(stream)>>>(__VA_ARGS__),         \
   static_cast<int>(cudaGetLastError()))
// clang-format on

#define TACO_UNROLL _Pragma("unroll")

namespace taco::cuda {

// Words that several blocks write and read while a kernel runs. No order with other memory is
// implied: a word carries all that it means, or __threadfence() stands beside it.
template <typename T>
__device__ __forceinline__ T loadVolatile(const T* word) {
  return *static_cast<const volatile T*>(word);
}

template <typename T>
__device__ __forceinline__ void storeVolatile(T* word, T value) {
  *static_cast<volatile T*>(word) = value;
}

}  // namespace taco::cuda

#endif  // TACO_SIMT
