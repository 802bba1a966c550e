// The way back from payloads to a dense buffer.
#pragma once

#include <cstdint>
#include <span>

#include "csrc/data/buffer.h"
#include "csrc/topk/payload.h"

namespace taco {

// dense[i] = (0 + value at i of payloads[0] + value at i of payloads[1] + ...) / divisor: added up
// in this order in float32, skipping those that have nothing at i, divided in float32 (AVG's
// division in csrc/data/reduce.h) and rounded once to dense.dtype, which is float32, float16 or
// bfloat16. So all ranks that have the same payloads get the same bits. A NaN is the positive quiet
// NaN.
//
// Every element of `dense` is written, and written once: the range is worked through in blocks that
// fit into the L1 cache, each with a cursor into every payload. `dense` may have any alignment;
// nothing overlaps it.
//
// Returns whether all values in the payloads are finite. Throws kMismatch, naming the payload,
// where its indices do not ascend or reach dense.count, before anything is written.
bool scatterAdd(std::span<const void* const> payloads, PayloadLayout layout, Buffer dense,
                int64_t divisor);

}  // namespace taco
