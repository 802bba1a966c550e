// From payloads back to a dense buffer.
#include <algorithm>
#include <cstdint>
#include <string>

#include "csrc/base/error.h"
#include "cuda/block.cuh"
#include "cuda/number.cuh"
#include "cuda/topk.h"

namespace taco::cuda {
namespace {

// Payloads whose parts a block looks up at a time; more take another round.
constexpr int kLookups = 32;

struct ScatterArguments {
  const char* payloads;
  size_t stride;
  int payloadCount;
  uint32_t k, count;
  bool isHalf;
  void* dense;
  bool denseAligned;  // for four elements at a time
  float divisor;
  uint32_t* found;
};

__global__ void clearFoundKernel(uint32_t* found) { *found = 0; }

__device__ inline const uint32_t* indicesOf(const ScatterArguments& a, int payload) {
  return reinterpret_cast<const uint32_t*>(a.payloads + static_cast<size_t>(payload) * a.stride);
}

__device__ inline float valueAt(const ScatterArguments& a, const uint32_t* indices, uint32_t i) {
  const uint32_t* const values = indices + a.k;
  if (!a.isHalf) return __uint_as_float(values[i]);
  return fromFloat16Bits(reinterpret_cast<const uint16_t*>(values)[i]);
}

// Each block looks at an equal share of every payload's indices: ascending, and below count? A
// broken list could hide from the search below, so whoever reads a part cannot vouch for it.
__device__ inline uint32_t findBroken(const ScatterArguments& a) {
  const auto begin = static_cast<uint32_t>(static_cast<Word>(a.k) * blockIdx.x / gridDim.x);
  const auto end = static_cast<uint32_t>(static_cast<Word>(a.k) * (blockIdx.x + 1) / gridDim.x);
  for (int payload = 0; payload < a.payloadCount; ++payload) {
    const uint32_t* const indices = indicesOf(a, payload);
    for (uint32_t i = begin + threadIdx.x; i < end; i += kThreads) {
      if (indices[i] >= a.count || (i > 0 && indices[i - 1] >= indices[i]))
        return kFoundBrokenPayload;
    }
  }
  return 0;
}

// Each block owns the 4096 elements of a tile, as sums in shared memory. Its warps look up which
// part of each payload falls there; then the payloads are added one after the other, with a barrier
// between, so the order of the additions is theirs. Within a payload no index comes twice, so no
// two threads meet. The dense range is written once, whole lines, and was never cleared.
//
// Reads the payloads once, and their indices once more; writes the dense buffer: 4 bytes an element
// with float32, plus 12 bytes a payload's element.
template <typename Dense>
__global__ void __launch_bounds__(kThreads) scatterAddKernel(ScatterArguments a) {
  __shared__ float sums[kTile];
  __shared__ uint32_t bounds[kLookups][2];
  const uint32_t first = blockIdx.x * kTile;
  const uint32_t size = a.count - first < kTile ? a.count - first : kTile;
  for (uint32_t i = threadIdx.x; i < kTile; i += kThreads) sums[i] = 0;
  uint32_t found = findBroken(a);

  for (int round = 0; round < a.payloadCount; round += kLookups) {
    const int here = a.payloadCount - round < kLookups ? a.payloadCount - round : kLookups;
    __syncthreads();  // the bounds of the last round have been read
    for (int lookup = warpIndex(); lookup < 2 * here; lookup += kWarps) {
      const uint32_t bound = warpLowerBound(indicesOf(a, round + lookup / 2), a.k,
                                            lookup % 2 == 0 ? first : first + size);
      if (laneIndex() == 0) bounds[lookup / 2][lookup % 2] = bound;
    }
    for (int payload = 0; payload < here; ++payload) {
      __syncthreads();
      const uint32_t* const indices = indicesOf(a, round + payload);
      const uint32_t end = bounds[payload][1];
      for (uint32_t i = bounds[payload][0] + threadIdx.x; i < end; i += kThreads) {
        const float value = valueAt(a, indices, i);
        const uint32_t at = indices[i] - first;
        if (at < size) sums[at] += value;  // it is, unless the payload is broken
        if (!isFinite(__float_as_uint(value))) found |= kFoundNonFinite;
      }
    }
  }
  if (found != 0) atomicOr(a.found, found);
  __syncthreads();

  Four<typename Dense::Storage> items[kRows];
  TACO_UNROLL
  for (int i = 0; i < kItems; ++i) {
    items[i / kNeighbours].at[i % kNeighbours] =
        Dense::narrow(resultBits(sums[placeInTile(i)] / a.divisor));
  }
  storeTile(static_cast<typename Dense::Storage*>(a.dense), first, a.count, a.denseAligned, items);
}

void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, "a TopK scatter-add on the GPU " + what);
}

void check(const ScatterAddCall& call) {
  const auto isAligned = [](const void* pointer, size_t bytes) {
    return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
  };
  if (call.dtype != DType::kFloat32 && call.dtype != DType::kFloat16 &&
      call.dtype != DType::kBFloat16) {
    throw Error(ErrorCode::kUnsupported, std::string("there is no GPU kernel that scatters into ") +
                                             name(call.dtype) +
                                             "; it writes float32, float16 and bfloat16");
  }
  if (call.count >= 1ull << 31) {
    refuse("writes fewer than 2^31 elements, not " + std::to_string(call.count));
  }
  if (call.layout.k > call.count) {
    refuse("was given payloads of " + std::to_string(call.layout.k) + " elements for a buffer of " +
           std::to_string(call.count));
  }
  if (call.payloadCount < 0) {
    refuse("was given " + std::to_string(call.payloadCount) + " payloads");
  }
  if (call.found == nullptr) refuse("needs a word in device memory for what it finds");
  if (call.divisor < 1) refuse("cannot divide by " + std::to_string(call.divisor));
  if (call.strideBytes % 4 != 0 || call.strideBytes < call.layout.bytes()) {
    refuse("needs payloads a multiple of 4 bytes and at least " +
           std::to_string(call.layout.bytes()) + " apart, not " + std::to_string(call.strideBytes));
  }
  if (!isAligned(call.payloads, 4) || !isAligned(call.dense, elementBytes(call.dtype))) {
    refuse("needs the payloads aligned to 4 bytes and the dense buffer to its elements");
  }
}

template <typename Dense>
int launch(const ScatterArguments& a, void* stream) {
  const unsigned blocks = (a.count + kTile - 1) / kTile;
  return TACO_LAUNCH(scatterAddKernel<Dense>, blocks, kThreads, stream, a);
}

}  // namespace

int enqueueScatterAdd(const ScatterAddCall& call) {
  check(call);
  if (const int error = TACO_LAUNCH(clearFoundKernel, 1u, 1, call.stream, call.found)) return error;
  if (call.count == 0) return 0;
  ScatterArguments a = {};
  a.payloads = static_cast<const char*>(call.payloads);
  a.stride = call.strideBytes;
  a.payloadCount = call.payloadCount;
  a.k = static_cast<uint32_t>(call.layout.k);
  a.count = static_cast<uint32_t>(call.count);
  a.isHalf = call.layout.values == TopkValues::kFloat16;
  a.dense = call.dense;
  a.denseAligned =
      reinterpret_cast<uintptr_t>(call.dense) % (kNeighbours * elementBytes(call.dtype)) == 0;
  a.divisor = static_cast<float>(call.divisor);
  a.found = call.found;
  if (call.dtype == DType::kFloat16) return launch<Float16>(a, call.stream);
  if (call.dtype == DType::kBFloat16) return launch<BFloat16>(a, call.stream);
  return launch<Float32>(a, call.stream);
}

}  // namespace taco::cuda
