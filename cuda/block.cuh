// Pieces that the 256 threads of a block do together. All of them must call.
#pragma once

#include <cstdint>

#include "cuda/launch.h"
#include "cuda/tile.cuh"
#include "cuda/warp.cuh"

namespace taco::cuda {

inline constexpr uint32_t kBins = 4096;

// The next tile, the same in all threads. Tiles are handed out in order, which blockIdx does not
// promise. Between two calls, all threads must have met at a barrier of the caller's; this one is
// a barrier as well.
__device__ inline uint32_t takeTile(uint32_t* ticket, uint32_t* shared) {
  if (threadIdx.x == 0) *shared = atomicAdd(ticket, 1u);
  __syncthreads();
  return *shared;
}

// Whether this is the last block of the grid to come here: it then sees, through loadVolatile and
// atomics, all that the others wrote before.
__device__ inline bool isLastBlock(uint32_t* arrived, uint32_t* shared) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) *shared = atomicAdd(arrived, 1u);
  __syncthreads();
  const bool last = *shared == gridDim.x - 1;
  if (last) __threadfence();
  return last;
}

// Sums over the warps of a block.
struct WarpTotals {
  Word before;  // the warps below this one
  Word all;
};
__device__ inline WarpTotals sumOverWarps(Word own, Word (&shared)[kWarps]) {
  if (laneIndex() == 0) shared[warpIndex()] = own;
  __syncthreads();
  WarpTotals totals = {0, 0};
  TACO_UNROLL
  for (int warp = 0; warp < kWarps; ++warp) {
    if (warp == warpIndex()) totals.before = totals.all;
    totals.all += shared[warp];
  }
  return totals;
}

__device__ inline void clearWords(uint32_t* words, size_t count) {
  const size_t stride = static_cast<size_t>(gridDim.x) * kThreads;
  for (size_t i = static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += stride) {
    words[i] = 0;
  }
}

// Adds the block's histogram to the one in device memory.
__device__ inline void addHistogram(uint32_t* histogram, const uint32_t* ofBlock) {
  __syncthreads();
  for (uint32_t bin = threadIdx.x; bin < kBins; bin += kThreads) {
    if (ofBlock[bin] != 0) atomicAdd(&histogram[bin], ofBlock[bin]);
  }
}

struct Bin {
  uint32_t bin;
  uint32_t above;  // elements in the bins above it
  uint32_t inside;
};
struct BinShared {
  Word totals[kWarps];
  Bin found;
};

// The bin with the k-th largest element; the histogram has at least k, k >= 1. Each thread adds up
// 16 bins, from the top, and the one in whose share the k-th is looks closer.
__device__ inline Bin findBin(const uint32_t* histogram, uint32_t k, BinShared* shared) {
  constexpr uint32_t kShare = kBins / kThreads;
  const uint32_t top = kBins - 1 - threadIdx.x * kShare;
  uint32_t own = 0;
  for (uint32_t i = 0; i < kShare; ++i) own += loadVolatile(&histogram[top - i]);
  const uint32_t inclusive = warpInclusiveSum(own);
  const uint32_t ofWarp = __shfl_sync(kAllLanes, inclusive, kWarpSize - 1);
  const auto before = static_cast<uint32_t>(sumOverWarps(ofWarp, shared->totals).before);
  uint32_t above = before + inclusive - own;
  if (above < k && k <= above + own) {
    for (uint32_t bin = top;; --bin) {
      const uint32_t inside = loadVolatile(&histogram[bin]);
      if (k <= above + inside) {
        shared->found = {bin, above, inside};
        break;
      }
      above += inside;
    }
  }
  __syncthreads();
  return shared->found;
}

}  // namespace taco::cuda
