// Pieces that the 32 threads of a warp do together. All of them must call.
#pragma once

#include <cstdint>

#include "cuda/launch.h"

namespace taco::cuda {

inline constexpr int kWarpSize = 32;
inline constexpr uint32_t kAllLanes = 0xffffffff;
using Word = unsigned long long;  // as CUDA's 64-bit functions have it

__device__ __forceinline__ int laneIndex() { return static_cast<int>(threadIdx.x) % kWarpSize; }
__device__ __forceinline__ int warpIndex() { return static_cast<int>(threadIdx.x) / kWarpSize; }

// The sum over this lane and those below it.
__device__ __forceinline__ uint32_t warpInclusiveSum(uint32_t value) {
  TACO_UNROLL
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const uint32_t below = __shfl_up_sync(kAllLanes, value, distance);
    if (laneIndex() >= distance) value += below;
  }
  return value;
}

// The sum over all lanes, in all lanes.
__device__ __forceinline__ Word warpSum(Word value) {
  TACO_UNROLL
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}

// The first place in `sorted` (ascending) whose number is not below `wanted`; `count` when there is
// none. Each step probes 32 places at once, so a list of a million takes four steps of memory
// latency and not twenty. Whatever is in `sorted`, the result is at most `count` and the search
// ends.
__device__ inline uint32_t warpLowerBound(const uint32_t* sorted, uint32_t count, uint32_t wanted) {
  const auto lane = static_cast<uint32_t>(laneIndex());
  uint32_t low = 0, high = count;  // the answer lies in [low, high]
  while (high - low > kWarpSize) {
    // 33 parts, so that each has fewer elements than the whole.
    const Word length = high - low;
    const auto probe = low + static_cast<uint32_t>(length * (lane + 1) / (kWarpSize + 1));
    const int below = __popc(__ballot_sync(kAllLanes, sorted[probe] < wanted));
    const uint32_t previous = __shfl_sync(kAllLanes, probe, below > 0 ? below - 1 : 0);
    const uint32_t next = __shfl_sync(kAllLanes, probe, below < kWarpSize ? below : kWarpSize - 1);
    if (below > 0) low = previous + 1;
    if (below < kWarpSize) high = next;
  }
  const bool isBelow = lane < high - low && sorted[low + lane] < wanted;
  return low + static_cast<uint32_t>(__popc(__ballot_sync(kAllLanes, isBelow)));
}

}  // namespace taco::cuda
