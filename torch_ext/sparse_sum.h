// All-reduce of sparse (COO) tensors: ranks hold different entries, so everybody gathers
// everybody's indices and values and adds them up itself, in rank order, which gives the same bits
// on all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include "csrc/communicator/collectives.h"

namespace taco {

// Replaces `tensor` by the (coalesced) sum over all ranks, divided by their number for AVG. Ranks
// must agree on the shape and on how many dimensions are sparse.
void sparseSum(Collectives& collectives, at::Tensor tensor, const ReduceSpec& spec);

}  // namespace taco
