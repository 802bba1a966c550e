// From which key on the next call's candidates are looked for.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "csrc/topk/select_kernels.h"

namespace taco::topk_internal {

class Guess {
 public:
  // Never 0, which would make every element a candidate: what is missing of k are then zeros
  // anyway.
  uint32_t minKey() const { return minKey_; }

  // Knows nothing but the k-th key.
  void learn(uint32_t kthKey) { set(kthKey, kUsualDepth); }

  // There were `candidates` from key `from` on.
  void learn(uint32_t kthKey, size_t k, uint32_t from, size_t candidates) {
    const float kth = std::bit_cast<float>(kthKey);
    // Elements near the k-th key lie about evenly.
    const float depth = 1 - std::bit_cast<float>(from) / kth;
    const float wanted =
        kSpare * static_cast<float>(k) / std::max(1.0f, static_cast<float>(candidates - k)) * depth;
    const float moved = last_ == 0 ? kUsualDepth : std::fabs(kth / last_ - 1);
    set(kthKey, std::max(wanted, 2 * moved));
  }

 private:
  static constexpr float kUsualDepth = 0.1f;
  static constexpr float kLeastDepth = 0.0005f;
  static constexpr float kMostDepth = 0.25f;
  static constexpr float kSpare = 0.75f;  // candidates beyond k, as a share of k

  // `depth`: how far the guess is below the k-th key, as a share of it.
  void set(uint32_t kthKey, float depth) {
    const bool known = kthKey < kInfinityKey;
    last_ = known ? std::bit_cast<float>(kthKey) : 0;
    // Written so that a NaN, from 0 / 0 or with infinities, ends as kMostDepth.
    const float limited = depth <= kMostDepth ? std::max(depth, kLeastDepth) : kMostDepth;
    minKey_ = std::max(1u, keyOf(last_ * (1 - limited)));
  }

  float last_ = 0;  // the last k-th key as a number; 0: unknown
  uint32_t minKey_ = 1;
};

}  // namespace taco::topk_internal
