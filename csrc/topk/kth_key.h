// Which key is the k-th largest: by histograms, each looking closer at one bin of the one before.
#pragma once

#include <cstddef>
#include <cstdint>

namespace taco::topk_internal {

struct KthKey {
  uint32_t key = 0;
  size_t ties = 0;  // how many of this key belong to the k largest; at least 1
};

// Of all the keys of `values`, which are in [low, high]; 1 <= k <= count.
KthKey kthKey(const float* values, size_t count, size_t k, uint32_t low, uint32_t high);

// By passes over all of `values`, which are in no known range: either the k-th key itself, or a
// lower bound that keeps the k largest and not more than `room` elements.
struct Bound {
  KthKey kth;  // ties: only where isExact
  bool isExact = false;
};
Bound boundFor(const float* values, size_t count, size_t k, size_t room);

}  // namespace taco::topk_internal
