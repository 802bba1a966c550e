// What a selection keeps between its kernels, and from one step to the next.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cuda/topk.h"

namespace taco::cuda {

// How a step goes on; the device decides it.
enum class SelectMode : uint32_t {
  kNone,
  kGuessFailed,   // too few or too many candidates: histograms of the residual
  kCollectAgain,  // a histogram gave a better guess
  kCandidates,    // the k-th key is among the candidates, in [low, low + 4096)
  kDigits,        // too many candidates for any guess: digit after digit over the residual
  kWhole,         // the k-th key is known; the chosen ones are in the residual
};

struct SelectState {
  SelectReport report;
  uint32_t guess;  // a key; 0: none yet
  float lastKth;   // the last step's k-th magnitude; 0: unknown
  SelectMode mode;
  uint32_t candidates;  // how many were found
  uint32_t low;         // kCandidates: see there; kDigits: the upper digits of the k-th key
  uint32_t above;       // elements known to be larger than what `low` leaves open
  uint32_t threshold;   // the k-th key
  uint32_t ties;        // how many elements with this key are chosen
  // Tiles handed out, and blocks that are done, of each kernel.
  uint32_t predictTicket, collectTicket, chooseTicket;
  uint32_t predictDone, topDone, secondDone, lastDone, chooseDone;
};

// The parts of a workspace, one behind the other, each aligned to 256 bytes.
struct SelectWorkspace {
  static constexpr size_t kHistogramBins = 4096;
  static constexpr size_t kTileElements = 4096;

  size_t tiles;
  size_t capacity;                                              // candidates there is room for
  size_t histograms, collectWords, chooseWords, bits, indices;  // offsets
  size_t bytes;

  SelectWorkspace(size_t count, size_t k) {
    tiles = std::max<size_t>(1, (count + kTileElements - 1) / kTileElements);
    // A good guess has 1.75 candidates for one chosen (topk_guess.cuh); there is room for one that
    // is well off, in a quarter of a byte an element.
    capacity = std::min(count, std::max({4 * k, count / 32, size_t{65536}}));
    size_t end = 0;
    const auto take = [&end](size_t partBytes) {
      const size_t begin = end;
      end += (partBytes + 255) / 256 * 256;
      return begin;
    };
    take(sizeof(SelectState));
    histograms = take(4 * kHistogramBins * sizeof(uint32_t));
    collectWords = take(tiles * sizeof(uint64_t));
    chooseWords = take(tiles * sizeof(uint64_t));
    bits = take(capacity * sizeof(uint32_t));
    indices = take(capacity * sizeof(uint32_t));
    bytes = end;
  }
};

}  // namespace taco::cuda
