// What the selection and the scatter-add are measured against: the least that anybody can do on the
// same memory, and the usual way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace taco::perf {

// residual += gradient, and nothing else.
void add(float* residual, const float* gradient, size_t count);

// Writes all of it, with ordinary stores.
void fill(float* dense, size_t count, float value);

// The k of largest magnitude by std::nth_element on (key, index) pairs, which torch.topk's
// algorithm on the CPU begins with. No residual.
using Pairs = std::vector<std::pair<uint32_t, uint32_t>>;
void nthElement(const float* values, size_t count, size_t k, Pairs& pairs);

}  // namespace taco::perf
