// cuda/scatter_add.cu, compiled for the CPU.
#include "tests/cuda/simt.h"
// After it:
#include "cuda/scatter_add.cu"
