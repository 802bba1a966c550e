// Selection with error feedback: five kernels a step, of which the second and the third return at
// once when the guess of the last step holds.
//
//   kernel      what it does                                                   bytes an element
//   predict     acc = gradient + residual; collects candidates, |acc| >= guess               12
//   histogram   the guess failed: counts the residual's keys by their upper 12 bits           4
//   second      the guess failed: collects candidates again, with the histogram's guess;      4
//               or, where so many are equal that no guess helps, counts the next 12 bits
//   last        the k-th key, from the candidates; or from the residual                0.1 or 4
//   choose      writes the payload and takes it out of the residual                    0.4 or 4
//
// How a step goes on is decided by the last block of each kernel, in device memory (SelectMode), so
// the host enqueues the same five kernels every time. There is no sampling before the first step,
// as the host has: it would be one more kernel in every captured step, to save the first one 8
// bytes an element.
//
// Each kernel leaves the counters clean that only the next step needs: choose clears what predict,
// histogram, second and last have counted, predict clears what choose has.
#pragma once

#include <cstdint>

#include "cuda/topk_collect.cuh"
#include "cuda/topk_guess.cuh"
#include "cuda/topk_send.cuh"

namespace taco::cuda {
namespace {  // kernels: one copy for each file that launches them

// What a multiprocessor of sm_80 to sm_100 holds of these kernels, by registers (64 a thread) and
// shared memory (25 KB a block); enough bytes under way to keep the memory busy.
inline constexpr int kBlocksPerMultiprocessor = 4;
// choose holds two words an item, and no longer has much to read.
inline constexpr int kChooseBlocksPerMultiprocessor = 3;

// Adds the gradient to the residual and collects the candidates.
//
// Reads gradient and residual, writes the residual: 12 bytes an element with float32, all in
// 16-byte accesses; and 8 bytes a candidate. Nothing else is as large, so this kernel is the memory
// floor.
template <typename Gradient>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    predictKernel(SelectArguments a) {
  __shared__ CollectShared shared;
  clearWords(reinterpret_cast<uint32_t*>(a.chooseWords), static_cast<size_t>(a.tiles) * 2);
  if (blockIdx.x == 0 && threadIdx.x == 0) *a.found = 0;

  const uint32_t guess = a.state->guess == 0 ? kNoCandidates : a.state->guess;
  while (true) {
    const uint32_t tile = takeTile(&a.state->predictTicket, &shared.tile);
    if (tile >= a.tiles) break;
    const uint32_t first = tile * kTile;
    Four<typename Gradient::Storage> gradient[kRows];
    Four<uint32_t> sum[kRows];
    loadTile(static_cast<const typename Gradient::Storage*>(a.gradient), first, a.count,
             a.gradientAligned, gradient);
    loadTile(a.residual, first, a.count, a.residualAligned, sum);
    TACO_UNROLL
    for (int i = 0; i < kItems; ++i) {
      uint32_t& bits = sum[i / kNeighbours].at[i % kNeighbours];
      bits = resultBits(__uint_as_float(bits) +
                        Gradient::widen(gradient[i / kNeighbours].at[i % kNeighbours]));
    }
    storeTile(a.residual, first, a.count, a.residualAligned, sum);
    collectTile(a, &shared, tile, sum, guess);
  }
  if (!isLastBlock(&a.state->predictDone, &shared.tile)) return;

  SelectState& state = *a.state;
  if (locateAmongCandidates(a, &shared, guess)) {
    if (threadIdx.x == 0) ++state.report.predicted;
    return;
  }
  if (threadIdx.x != 0) return;
  const uint32_t candidates = loadVolatile(&state.candidates);
  if (guess == 1 && candidates < a.k) {
    // All that is not zero, and still too few: the rest are the first zeros.
    state.mode = SelectMode::kWhole;
    state.threshold = 0;
    state.ties = a.k - candidates;
  } else {
    state.mode = SelectMode::kGuessFailed;
  }
}

// Histogram of the keys' upper twelve bits. Its k-th bin gives the guess that cannot be too high,
// and says how many candidates that makes. Clears what predict has collected.
//
// Reads the residual, 4 bytes an element. Each block counts in shared memory.
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    histogramKernel(SelectArguments a) {
  if (a.state->mode != SelectMode::kGuessFailed) return;
  __shared__ uint32_t histogram[kBins];
  __shared__ BinShared shared;
  __shared__ uint32_t arrived;
  clearWords(reinterpret_cast<uint32_t*>(a.collectWords), static_cast<size_t>(a.tiles) * 2);
  clearWords(a.coarse, kBins);
  for (uint32_t bin = threadIdx.x; bin < kBins; bin += kThreads) histogram[bin] = 0;
  __syncthreads();
  for (uint32_t tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
    const uint32_t first = tile * kTile;
    Four<uint32_t> items[kRows];
    loadTile(a.residual, first, a.count, a.residualAligned, items);
    TACO_UNROLL
    for (int i = 0; i < kItems; ++i) {
      if (first + placeInTile(i) >= a.count) continue;
      atomicAdd(&histogram[keyOf(items[i / kNeighbours].at[i % kNeighbours]) >> kTopShift], 1u);
    }
  }
  addHistogram(a.top, histogram);
  if (!isLastBlock(&a.state->topDone, &arrived)) return;

  const Bin bin = findBin(a.top, a.k, &shared);
  if (threadIdx.x != 0) return;
  SelectState& state = *a.state;
  if (bin.above + bin.inside <= a.capacity) {
    state.guess = bin.bin << kTopShift;  // of this step; choose makes the next one's
    state.mode = SelectMode::kCollectAgain;
  } else {
    state.low = bin.bin;
    state.above = bin.above;
    state.mode = SelectMode::kDigits;
  }
}

// The second pass over the residual: collects the candidates again; or, if there is no room for
// them, counts the next twelve bits of those keys that share their upper bits with the k-th.
//
// Reads the residual, 4 bytes an element; writes 8 bytes a candidate.
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    secondKernel(SelectArguments a) {
  const SelectMode mode = a.state->mode;
  if (mode != SelectMode::kCollectAgain && mode != SelectMode::kDigits) return;
  __shared__ CollectShared shared;
  SelectState& state = *a.state;
  Four<uint32_t> items[kRows];
  if (mode == SelectMode::kCollectAgain) {
    const uint32_t guess = state.guess;
    while (true) {
      const uint32_t tile = takeTile(&state.collectTicket, &shared.tile);
      if (tile >= a.tiles) break;
      loadTile(a.residual, tile * kTile, a.count, a.residualAligned, items);
      collectTile(a, &shared, tile, items, guess);
    }
    if (!isLastBlock(&state.secondDone, &shared.tile)) return;
    locateAmongCandidates(a, &shared, guess);  // the histogram has seen to it that they are there
    if (threadIdx.x == 0) ++state.report.collected;
    return;
  }

  uint32_t* const histogram = shared.bits;
  const uint32_t upper = state.low, above = state.above;
  for (uint32_t bin = threadIdx.x; bin < kBins; bin += kThreads) histogram[bin] = 0;
  __syncthreads();
  for (uint32_t tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
    const uint32_t first = tile * kTile;
    loadTile(a.residual, first, a.count, a.residualAligned, items);
    TACO_UNROLL
    for (int i = 0; i < kItems; ++i) {
      const uint32_t key = keyOf(items[i / kNeighbours].at[i % kNeighbours]);
      if (first + placeInTile(i) >= a.count || key >> kTopShift != upper) continue;
      atomicAdd(&histogram[key >> kMiddleShift & (kBins - 1)], 1u);
    }
  }
  addHistogram(a.middle, histogram);
  if (!isLastBlock(&state.secondDone, &shared.tile)) return;
  const Bin bin = findBin(a.middle, a.k - above, &shared.bin);
  if (threadIdx.x == 0) {
    state.low = upper << (kTopShift - kMiddleShift) | bin.bin;
    state.above = above + bin.above;
  }
}

// Single keys: the k-th, and how many of its equals are chosen.
//
// Reads the candidates' keys, 4 bytes each (with kDigits the residual, 4 bytes an element).
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    lastKernel(SelectArguments a) {
  const SelectMode mode = a.state->mode;
  if (mode == SelectMode::kWhole) return;
  __shared__ uint32_t histogram[kBins];
  __shared__ BinShared shared;
  __shared__ uint32_t arrived;
  SelectState& state = *a.state;
  const bool isAmongCandidates = mode == SelectMode::kCandidates;
  const uint32_t above = state.above;
  const uint32_t lowest = isAmongCandidates ? state.low : state.low << kMiddleShift;
  const uint32_t width = isAmongCandidates ? 1u << kCoarseShift : 1u << kMiddleShift;
  const uint32_t* const from = isAmongCandidates ? a.candidateBits : a.residual;
  const uint32_t count = isAmongCandidates ? state.candidates : a.count;
  if (blockIdx.x * kThreads < count) {  // there are fewer candidates than threads, mostly
    for (uint32_t bin = threadIdx.x; bin < kBins; bin += kThreads) histogram[bin] = 0;
    __syncthreads();
    for (uint32_t i = blockIdx.x * kThreads + threadIdx.x; i < count; i += gridDim.x * kThreads) {
      const uint32_t step = keyOf(from[i]) - lowest;
      if (step < width) atomicAdd(&histogram[step], 1u);
    }
    addHistogram(a.last, histogram);
  }
  if (!isLastBlock(&state.lastDone, &arrived)) return;

  const Bin bin = findBin(a.last, a.k - above, &shared);
  if (threadIdx.x != 0) return;
  state.threshold = lowest + bin.bin;
  state.ties = a.k - above - bin.above;
  if (!isAmongCandidates) state.mode = SelectMode::kWhole;
}

// Writes the payload in index order: the elements above the k-th key, and of those equal to it the
// first ones. Where an element goes is known from how many of either kind come before it, which the
// tiles look up in one another. Leaves the guess of the next step.
//
// Reads the candidates, 8 bytes each (with kWhole the residual, 4 bytes an element); writes the
// payload and the residual where something was sent.
template <TopkValues kValues>
__global__ void __launch_bounds__(kThreads, kChooseBlocksPerMultiprocessor)
    chooseKernel(SelectArguments a) {
  __shared__ uint32_t sharedTile;
  __shared__ Word totalsShared[kWarps];
  __shared__ Word base;
  clearWords(reinterpret_cast<uint32_t*>(a.collectWords), static_cast<size_t>(a.tiles) * 2);
  clearWords(a.coarse, 4 * kBins);  // all four

  SelectState& state = *a.state;
  const bool isWhole = state.mode == SelectMode::kWhole;
  const uint32_t threshold = state.threshold, ties = state.ties;
  const uint32_t count = isWhole ? a.count : state.candidates;
  while (true) {
    const uint32_t tile = takeTile(&state.chooseTicket, &sharedTile);
    if (tile >= (count + kTile - 1) / kTile) break;
    const uint32_t first = tile * kTile;
    Four<uint32_t> bits[kRows], index[kRows] = {};
    if (isWhole) {
      loadTile(a.residual, first, count, a.residualAligned, bits);
    } else {
      loadTile(a.candidateBits, first, count, true, bits);
      loadTile(a.candidateIndex, first, count, true, index);
    }
    const uint32_t above = itemMask(bits, first, count,
                                    [threshold](uint32_t item) { return keyOf(item) > threshold; });
    const uint32_t equal = itemMask(
        bits, first, count, [threshold](uint32_t item) { return keyOf(item) == threshold; });
    const Places abovePlaces(above), equalPlaces(equal);
    const WarpTotals totals =
        sumOverWarps(pairOf(abovePlaces.total(), equalPlaces.total()), totalsShared);
    if (warpIndex() == 0) {
      const Word before = lookBack(a.chooseWords, tile, totals.all);
      if (laneIndex() == 0) base = before;
    }
    __syncthreads();
    const Word before = base + totals.before;
    TACO_UNROLL
    for (int row = 0; row < kRows; ++row) {
      uint32_t aboveBefore = firstOf(before) + abovePlaces.before(row);
      uint32_t equalBefore = secondOf(before) + equalPlaces.before(row);
      TACO_UNROLL
      for (int i = row * kNeighbours; i < (row + 1) * kNeighbours; ++i) {
        const bool isAbove = (above >> i & 1) != 0, isEqual = (equal >> i & 1) != 0;
        if (isAbove || (isEqual && equalBefore < ties)) {
          const uint32_t position = aboveBefore + (equalBefore < ties ? equalBefore : ties);
          send<kValues>(a, position,
                        isWhole ? first + placeInTile(i) : index[row].at[i % kNeighbours],
                        bits[row].at[i % kNeighbours]);
        }
        aboveBefore += isAbove ? 1 : 0;
        equalBefore += isEqual ? 1 : 0;
      }
    }
  }
  if (!isLastBlock(&state.chooseDone, &sharedTile) || threadIdx.x != 0) return;

  state.report.thresholdKey = threshold;
  state.report.candidates = count;
  if (isWhole) ++state.report.whole;
  // A step with NaN or infinity is skipped by training and says nothing about the next.
  if (isFinite(threshold)) {
    const bool hasHeld = !isWhole && state.topDone == 0;
    state.guess = nextGuess(threshold, a.k, hasHeld ? state.guess : 0, count, state.lastKth);
    state.lastKth = __uint_as_float(threshold);
  }
  state.mode = SelectMode::kNone;
  state.predictTicket = state.collectTicket = state.chooseTicket = 0;
  state.predictDone = state.topDone = state.secondDone = state.lastDone = state.chooseDone = 0;
}

// For workspaces, and words of findings.
__global__ void clearKernel(uint32_t* words, size_t count) { clearWords(words, count); }

}  // namespace
}  // namespace taco::cuda
