// From which key on the next step's candidates are looked for; csrc/topk/guess.h has the same rule.
// It decides how fast a step is and never what it chooses.
#pragma once

#include <cstdint>

#include "cuda/launch.h"
#include "cuda/number.cuh"

namespace taco::cuda {

// How far the guess lies below the k-th magnitude, as a share of it.
inline constexpr float kUsualDepth = 0.1f;
inline constexpr float kLeastDepth = 0.004f;
inline constexpr float kMostDepth = 0.25f;
// Candidates wanted beyond k, as a share of k. A fixed depth does not do: error feedback heaps up
// elements just below the threshold, ten candidates for one chosen where gradients stay the same.
inline constexpr float kSpare = 0.75f;

// With `candidates` of at least the key `from`, which held the k largest; from = 0 when that is not
// known. `lastKth`: the k-th magnitude of the step before, 0 when unknown.
__device__ inline uint32_t nextGuess(uint32_t kthKey, uint32_t k, uint32_t from,
                                     uint32_t candidates, float lastKth) {
  const float kth = __uint_as_float(kthKey);
  float depth = kUsualDepth;
  if (from != 0) {
    // Elements near the k-th lie about evenly.
    const float spare = candidates > k ? static_cast<float>(candidates - k) : 1.0f;
    const float wanted = kSpare * static_cast<float>(k) / spare * (1 - __uint_as_float(from) / kth);
    const float moved = lastKth == 0 ? kUsualDepth : kth / lastKth - 1;
    const float least = 2 * (moved < 0 ? -moved : moved);
    depth = wanted > least ? wanted : least;
  }
  // Written so that a NaN, from 0 / 0, ends as kMostDepth.
  if (!(depth <= kMostDepth)) depth = kMostDepth;
  if (depth < kLeastDepth) depth = kLeastDepth;
  const uint32_t guess = keyOf(__float_as_uint(kth * (1 - depth)));
  return guess > 0 ? guess : 1;  // at 0 every element would be a candidate
}

}  // namespace taco::cuda
