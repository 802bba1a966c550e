#include "perf/topk/floor.h"

#include <algorithm>
#include <bit>
#include <functional>

#if defined(__x86_64__)
#define TACO_WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TACO_WIDEST
#endif

namespace taco::perf {

TACO_WIDEST void add(float* residual, const float* gradient, size_t count) {
  for (size_t i = 0; i < count; ++i) residual[i] += gradient[i];
}

TACO_WIDEST void fill(float* dense, size_t count, float value) {
  // Not as a call of memset.
  for (size_t i = 0; i < count; ++i) dense[i] = value;
}

void nthElement(const float* values, size_t count, size_t k, Pairs& pairs) {
  pairs.resize(count);
  for (size_t i = 0; i < count; ++i) {
    pairs[i] = {std::bit_cast<uint32_t>(values[i]) & 0x7fffffff, static_cast<uint32_t>(i)};
  }
  std::nth_element(pairs.begin(), pairs.begin() + static_cast<ptrdiff_t>(k - 1), pairs.end(),
                   std::greater<>());
}

}  // namespace taco::perf
