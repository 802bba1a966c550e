// Where a tile's output begins, while the tiles before it are still being worked on.
//
// Merrill and Garland's decoupled look-back: each tile has one word, which says nothing yet, or how
// much the tile itself has (its own), or how much it and all before it have (the running sum). A
// tile publishes its own, then adds up the words before it until it meets a running sum, and
// publishes its running sum. So positions in index order come out of one pass over the data, and
// are the same on every run.
//
// It ends because tiles are handed out in order (takeTile): whoever is waited for has begun.
#pragma once

#include <cstdint>

#include "cuda/launch.h"
#include "cuda/warp.cuh"

namespace taco::cuda {

// The two upper bits of a tile's word; 0: nothing yet. The rest is a count, or two of 31 bits.
inline constexpr Word kOwn = 1ull << 62;
inline constexpr Word kRunningSum = 2ull << 62;
inline constexpr Word kCountMask = (1ull << 62) - 1;

// Two counts that are added up together.
__device__ __forceinline__ Word pairOf(uint32_t first, uint32_t second) {
  return static_cast<Word>(first) << 31 | second;
}
__device__ __forceinline__ uint32_t firstOf(Word pair) { return static_cast<uint32_t>(pair >> 31); }
__device__ __forceinline__ uint32_t secondOf(Word pair) {
  return static_cast<uint32_t>(pair & 0x7fffffff);
}

// One warp: tells the tiles behind that `tile` has `own`, and returns what all tiles before it
// have. Each look is at 32 tiles; lane 0 takes the nearest.
__device__ inline Word lookBack(Word* words, uint32_t tile, Word own) {
  const int lane = laneIndex();
  if (lane == 0) storeVolatile(&words[tile], (tile == 0 ? kRunningSum : kOwn) | own);
  Word before = 0;
  for (int64_t end = tile; end > 0; end -= kWarpSize) {
    const int64_t at = end - 1 - lane;
    Word word;
    uint32_t sums, wanted;
    while (true) {
      word = at >= 0 ? loadVolatile(&words[at]) : kRunningSum;
      sums = __ballot_sync(kAllLanes, word >= kRunningSum);
      // Up to the nearest running sum, or all of them.
      wanted = sums == 0 ? kAllLanes : sums ^ (sums - 1);
      const uint32_t known = __ballot_sync(kAllLanes, word != 0);
      if ((known & wanted) == wanted) break;
      __nanosleep(40);
    }
    before += warpSum((wanted >> lane & 1) != 0 ? word & kCountMask : 0);
    if (sums != 0) break;
  }
  if (lane == 0 && tile > 0) storeVolatile(&words[tile], kRunningSum | (before + own));
  return before;
}

}  // namespace taco::cuda
