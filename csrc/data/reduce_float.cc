// float32 and float64: computed with in their own precision.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "csrc/data/reduce_float.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "csrc/data/reduce_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace taco::data_internal {
namespace HWY_NAMESPACE {

void reduceFloatTarget(Kernel kernel, bool isDouble, const Operands& operands) {
  if (isDouble) {
    runFloatKernel<double, RunStorage<Native<double>>>(kernel, operands);
  } else {
    runFloatKernel<float, RunStorage<Native<float>>>(kernel, operands);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace taco::data_internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace taco::data_internal {

HWY_EXPORT(reduceFloatTarget);

void reduceFloat(Kernel kernel, DType dtype, const Operands& operands) {
  HWY_DYNAMIC_DISPATCH(reduceFloatTarget)(kernel, dtype == DType::kFloat64, operands);
}

}  // namespace taco::data_internal
#endif
