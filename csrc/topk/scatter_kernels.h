// Between scatter_add.cc, which checks, and scatter_kernels.cc, the loops over elements, compiled
// for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/data/buffer.h"
#include "csrc/topk/payload.h"

namespace taco::topk_internal {

// A payload, and how far it has been worked through.
struct Cursor {
  const uint8_t* indices;
  const uint8_t* values;
  size_t next = 0;
};

// What a look at a payload shows.
struct Inspection {
  bool ascends = true;  // every index is larger than the one before
  bool finite = true;
};
Inspection inspect(const Cursor& payload, PayloadLayout layout);  // layout.k >= 1

struct Scatter {
  std::vector<Cursor> cursors;
  PayloadLayout layout;
  Buffer dense;
  float divisor = 1;
};
// Needs payloads that ascend; writes nowhere else even if they do not.
void scatter(Scatter& work);

}  // namespace taco::topk_internal
