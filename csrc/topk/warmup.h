#pragma once

#include <cstdint>

namespace taco {

// The ratio of step `step` (from 0) of a training that warms up for `warmupSteps` steps: 1 (dense)
// in the first quarter of them, then 1 -> ratio exponentially, ratio from then on. Early gradients
// are large and change fast, which is where compression harms most; DGC (Lin et al., ICLR 2018,
// section 3.3) lets the ratio fall exponentially too, by 4 an epoch.
double topkRatioAt(uint64_t step, uint64_t warmupSteps, double ratio);

}  // namespace taco
