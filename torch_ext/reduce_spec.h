// c10d's reduction, checked and in the engine's terms.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "csrc/communicator/collectives.h"

namespace taco {

ReduceOp reduceOpOf(const char* operation, const c10d::ReduceOp& op);

// Refuses, naming op and dtype, what has no meaning (BXOR of floats, MAX of complex, any arithmetic
// on dtypes that only travel as bytes).
ReduceSpec reduceSpec(const char* operation, const c10d::ReduceOp& op, const at::Tensor& tensor);

}  // namespace taco
