#include "csrc/topk/warmup.h"

#include <cmath>

namespace taco {

double topkRatioAt(uint64_t step, uint64_t warmupSteps, double ratio) {
  const uint64_t denseSteps = warmupSteps / 4;
  if (step >= warmupSteps) return ratio;
  if (step < denseSteps) return 1;
  // After the last dense step the fall begins at once: the first compressed step is below 1.
  const double progress = static_cast<double>(step - denseSteps + 1) /
                          static_cast<double>(warmupSteps - denseSteps + 1);
  return std::pow(ratio, progress);
}

}  // namespace taco
