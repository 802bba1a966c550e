#pragma once

#include "cuda/entry.h"

namespace taco::testing {

// Of the library that the environment variable TACO_CUDA_LIBRARY names. Ends the process with a
// sentence where there is none, or no GPU.
const cuda::Entry& entry();

}  // namespace taco::testing
