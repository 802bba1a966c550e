// Element-wise sum of n sources.
//
// The sum is bound by memory, so each thread moves 16 bytes a load (a "pack" of elements) and walks the
// buffer in strides of the whole grid: neighbouring threads touch neighbouring packs at every step.
// float16 and bfloat16 are added up in float32 and rounded once, at the store; the order of the
// additions is the order of the sources, so that all ranks get the same bits from the same sources.
// Elements that do not fill a pack, and buffers that are not aligned to one, take packs of one element.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "csrc/base/error.h"
#include "cuda/reduce_kernels.h"

namespace taco::cuda {
namespace {

constexpr int kPackBytes = 16;
constexpr int kThreads = 512;
// Enough resident blocks to hide the latency of the loads; more only add launch work.
constexpr int kBlocksPerMultiprocessor = 4;

template <typename T>
struct Accumulator {
  using Type = T;
  __device__ static Type widen(T value) { return value; }
  __device__ static T round(Type value) { return value; }
};

template <>
struct Accumulator<__half> {
  using Type = float;
  __device__ static float widen(__half value) { return __half2float(value); }
  __device__ static __half round(float value) { return __float2half_rn(value); }
};

template <>
struct Accumulator<__nv_bfloat16> {
  using Type = float;
  __device__ static float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
  __device__ static __nv_bfloat16 round(float value) { return __float2bfloat16_rn(value); }
};

template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T element[kWidth];
};

struct Sources {
  const void* pointer[kMaxSources];
  int count;
};

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads) sumKernel(T* dst, Sources sources, size_t packs) {
  using P = Pack<T, kWidth>;
  using A = Accumulator<T>;
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t at = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; at < packs;
       at += stride) {
    typename A::Type sum[kWidth];
    const P first = static_cast<const P*>(sources.pointer[0])[at];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum[i] = A::widen(first.element[i]);
    for (int source = 1; source < sources.count; ++source) {
      const P next = static_cast<const P*>(sources.pointer[source])[at];
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum[i] = sum[i] + A::widen(next.element[i]);
    }
    P result;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) result.element[i] = A::round(sum[i]);
    reinterpret_cast<P*>(dst)[at] = result;
  }
}

template <typename T, int kWidth>
int launch(T* dst, const Sources& sources, size_t packs, cudaStream_t stream,
           const DeviceApi& device) {
  if (packs == 0) return cudaSuccess;
  int multiprocessors = 0;
  if (const int error = device.multiprocessorCount(&multiprocessors); error != 0) return error;
  const size_t enough = (packs + kThreads - 1) / kThreads;
  const size_t blocks = std::min<size_t>(enough, multiprocessors * kBlocksPerMultiprocessor);
  sumKernel<T, kWidth><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(dst, sources, packs);
  return cudaGetLastError();
}

bool isPackAligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % kPackBytes == 0;
}

template <typename T>
int enqueueTyped(const SumCall& call, const DeviceApi& device) {
  constexpr int kWidth = kPackBytes / sizeof(T);
  Sources sources = {};
  sources.count = call.sourceCount;
  std::copy_n(call.sources, call.sourceCount, sources.pointer);

  const bool aligned = isPackAligned(call.dst) && std::all_of(call.sources,
                                                              call.sources + call.sourceCount,
                                                              isPackAligned);
  const size_t packs = aligned ? call.count / kWidth : 0;
  auto* dst = static_cast<T*>(call.dst);
  auto stream = static_cast<cudaStream_t>(call.stream);
  if (const int error = launch<T, kWidth>(dst, sources, packs, stream, device); error != 0) {
    return error;
  }
  const size_t done = packs * kWidth;
  for (int source = 0; source < sources.count; ++source) {
    sources.pointer[source] = static_cast<const T*>(call.sources[source]) + done;
  }
  return launch<T, 1>(dst + done, sources, call.count - done, stream, device);
}

}  // namespace

int enqueueSum(const SumCall& call, const DeviceApi& device) {
  if (call.sourceCount < 1 || call.sourceCount > kMaxSources) {
    throw Error(ErrorCode::kInvalidArgument,
                "a sum on the GPU takes 1 to " + std::to_string(kMaxSources) + " sources, not " +
                    std::to_string(call.sourceCount));
  }
  switch (call.dtype) {
    case DType::kFloat32:
      return enqueueTyped<float>(call, device);
    case DType::kFloat64:
      return enqueueTyped<double>(call, device);
    case DType::kFloat16:
      return enqueueTyped<__half>(call, device);
    case DType::kBFloat16:
      return enqueueTyped<__nv_bfloat16>(call, device);
    // Two's complement: signed and unsigned sums have the same bits, and unsigned ones may wrap.
    case DType::kInt32:
      return enqueueTyped<uint32_t>(call, device);
    case DType::kInt64:
      return enqueueTyped<unsigned long long>(call, device);
    case DType::kComplex64:
    case DType::kComplex128:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kUInt8:
    case DType::kUInt16:
    case DType::kUInt32:
    case DType::kUInt64:
    case DType::kBool:
    case DType::kBytes1:
    case DType::kBytes2:
    case DType::kBytes4:
    case DType::kBytes8:
    case DType::kBytes16:
      break;
  }
  throw Error(ErrorCode::kUnsupported,
              std::string("there is no GPU kernel that sums ") + name(call.dtype));
}

}  // namespace taco::cuda
