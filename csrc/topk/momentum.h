// What happens to a buffer besides the selection: DGC's momentum correction, and the flush of a
// residual with a dense step.
#pragma once

#include <cstddef>

#include "csrc/data/buffer.h"
#include "csrc/topk/payload.h"

namespace taco {

// momentum[i] = factor * momentum[i] + gradient[i], in float32. The gradient is float32, float16 or
// bfloat16. (DGC, section 3.2, equation 4: u = m u + g; it is u that the residual accumulates.)
void addMomentum(float* momentum, ConstBuffer gradient, double factor);

// momentum = 0 where the payload sends something (DGC's momentum factor masking).
void maskSent(float* momentum, const void* payload, const PayloadLayout& layout);

// values[i] = round(gradient[i] + residual[i]), with the sum in float32; the residual becomes 0. The
// gradient may be `values` itself, or float32 whatever the values are.
void flushResidual(Buffer values, ConstBuffer gradient, float* residual);

// Whether no value is NaN or infinite; float32, float16, bfloat16.
bool allFinite(ConstBuffer values);

}  // namespace taco
