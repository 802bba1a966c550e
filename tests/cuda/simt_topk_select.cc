// cuda/topk_select.cu, compiled for the CPU.
#include "tests/cuda/simt.h"
// After it:
#include "cuda/topk_select.cu"
