// The selection's arguments, and the piece that collects candidates: used over gradient + residual
// by the first kernel of a step, and over the residual by the fall-back.
#pragma once

#include <cstdint>

#include "cuda/block.cuh"
#include "cuda/look_back.cuh"
#include "cuda/number.cuh"
#include "cuda/tile.cuh"
#include "cuda/topk_workspace.h"

namespace taco::cuda {

static_assert(SelectWorkspace::kHistogramBins == kBins && SelectWorkspace::kTileElements == kTile);

struct SelectArguments {
  const void* gradient;
  uint32_t* residual;  // bits of float32
  uint32_t count, k;
  bool gradientAligned, residualAligned;  // for four elements at a time
  uint32_t* payloadIndices;
  void* payloadValues;
  uint32_t* found;

  SelectState* state;
  uint32_t tiles, capacity;
  Word *collectWords, *chooseWords;
  uint32_t* coarse;         // histogram of the candidates' keys in steps of 4096, from the guess up
  uint32_t* top;            // of the residual's keys: bits 30 to 19
  uint32_t* middle;         // bits 18 to 7
  uint32_t* last;           // single keys
  uint32_t* candidateBits;  // in index order
  uint32_t* candidateIndex;
};

inline constexpr int kCoarseShift = 12;
inline constexpr int kTopShift = 19;
inline constexpr int kMiddleShift = 7;
inline constexpr uint32_t kNoCandidates = kKeyMask + 1;  // a guess above every key

struct CollectShared {
  uint32_t tile;
  uint32_t base;
  Word totals[kWarps];
  BinShared bin;
  uint32_t bits[kTile];
  uint16_t place[kTile];
};

// Appends the tile's items with keys of at least `guess` to the candidates, in index order, and
// counts them in the coarse histogram. They are gathered in shared memory first, so that device
// memory is written in whole lines and lanes can count equal bins together: equal elements would
// otherwise queue up for one address.
//
// Reads nothing, writes 8 bytes a candidate. Candidates without room are counted and dropped.
__device__ inline void collectTile(const SelectArguments& a, CollectShared* shared, uint32_t tile,
                                   const Four<uint32_t> (&items)[kRows], uint32_t guess) {
  const uint32_t first = tile * kTile;
  const uint32_t mask =
      itemMask(items, first, a.count, [guess](uint32_t bits) { return keyOf(bits) >= guess; });
  const Places places(mask);
  const WarpTotals totals = sumOverWarps(places.total(), shared->totals);
  const auto ofTile = static_cast<uint32_t>(totals.all);
  if (warpIndex() == 0) {
    const Word before = lookBack(a.collectWords, tile, totals.all);
    if (laneIndex() == 0) shared->base = static_cast<uint32_t>(before);
  }
  TACO_UNROLL
  for (int row = 0; row < kRows; ++row) {
    uint32_t at = static_cast<uint32_t>(totals.before) + places.before(row);
    TACO_UNROLL
    for (int i = row * kNeighbours; i < (row + 1) * kNeighbours; ++i) {
      if ((mask >> i & 1) == 0) continue;
      shared->bits[at] = items[row].at[i % kNeighbours];
      shared->place[at] = static_cast<uint16_t>(placeInTile(i));
      ++at;
    }
  }
  __syncthreads();

  const uint32_t base = shared->base;
  const auto lane = static_cast<uint32_t>(laneIndex());
  for (uint32_t start = static_cast<uint32_t>(warpIndex()) * kWarpSize;
       start < ofTile && base + start < a.capacity; start += kThreads) {
    const uint32_t i = start + lane;
    const bool isStored = i < ofTile && base + i < a.capacity;
    uint32_t bin = kBins;
    if (isStored) {
      const uint32_t bits = shared->bits[i];
      a.candidateBits[base + i] = bits;
      a.candidateIndex[base + i] = first + shared->place[i];
      const uint32_t step = (keyOf(bits) - guess) >> kCoarseShift;
      bin = step < kBins ? step : kBins - 1;
    }
    const uint32_t peers = __match_any_sync(kAllLanes, bin);
    if (isStored && lane + 1 == static_cast<uint32_t>(__ffs(static_cast<int>(peers)))) {
      atomicAdd(&a.coarse[bin], static_cast<uint32_t>(__popc(peers)));
    }
  }
  if (tile == a.tiles - 1 && threadIdx.x == 0) storeVolatile(&a.state->candidates, base + ofTile);
}

// The last block of a collecting kernel: kCandidates if the k-th key is among the candidates, and
// not so far above the guess that the coarse histogram does not tell where; otherwise says no.
__device__ inline bool locateAmongCandidates(const SelectArguments& a, CollectShared* shared,
                                             uint32_t guess) {
  const uint32_t candidates = loadVolatile(&a.state->candidates);
  if (candidates < a.k || candidates > a.capacity) return false;
  const Bin bin = findBin(a.coarse, a.k, &shared->bin);
  if (bin.bin == kBins - 1) return false;
  if (threadIdx.x == 0) {
    a.state->low = guess + (bin.bin << kCoarseShift);
    a.state->above = bin.above;
    a.state->mode = SelectMode::kCandidates;
  }
  return true;
}

}  // namespace taco::cuda
