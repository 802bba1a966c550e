// What complex numbers do not share with pairs of real ones: the product, and the sum scaled by a
// complex factor. Everything else reduce.cc hands to reduce_float.cc with twice the count.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "csrc/data/reduce_complex.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <limits>

#include "csrc/data/reduce_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace taco::data_internal {
namespace HWY_NAMESPACE {

// acc[i] *= x[i] for n / 2 complex numbers: (a + bi)(c + di) = (ac - bd) + (ad + bc)i, without the
// case analysis of C's Annex G for infinities (torch does without it too). In two loops, the
// products first: from one loop GCC 12 makes fused FMADDSUB instructions, which round differently,
// even where -ffp-contract=off forbids them.
template <typename T>
HWY_INLINE void multiplyInto(T* HWY_RESTRICT acc, const T* HWY_RESTRICT x, size_t n) {
  alignas(64) T first[kBlockBytes / sizeof(T)];
  alignas(64) T second[kBlockBytes / sizeof(T)];
  for (size_t i = 0; i < n; i += 2) {
    first[i] = acc[i] * x[i];
    second[i] = acc[i + 1] * x[i + 1];
    first[i + 1] = acc[i] * x[i + 1];
    second[i + 1] = acc[i + 1] * x[i];
  }
  for (size_t i = 0; i < n; i += 2) {
    acc[i] = first[i] - second[i];
    acc[i + 1] = first[i + 1] + second[i + 1];
  }
}

template <typename T>
HWY_INLINE void canonicalNans(T* values, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    values[i] = values[i] == values[i] ? values[i] : std::numeric_limits<T>::quiet_NaN();
  }
}

template <typename T>
struct ComplexProduct {
  void before(T* /*x*/, size_t /*n*/) const {}
  void combine(T* HWY_RESTRICT acc, const T* HWY_RESTRICT x, size_t n) const {
    multiplyInto(acc, x, n);
  }
  void after(T* acc, size_t n) const { canonicalNans(acc, n); }
};

template <typename T>
struct ComplexScaledSum {
  T factors[kBlockBytes / sizeof(T)];  // re, im, re, im, ...

  ComplexScaledSum(double re, double im) {
    for (size_t i = 0; i < kBlockBytes / sizeof(T); i += 2) {
      factors[i] = static_cast<T>(re);
      factors[i + 1] = static_cast<T>(im);
    }
  }
  void before(T* x, size_t n) const { multiplyInto(x, factors, n); }
  void combine(T* HWY_RESTRICT acc, const T* HWY_RESTRICT x, size_t n) const {
    for (size_t i = 0; i < n; ++i) acc[i] += x[i];
  }
  void after(T* acc, size_t n) const { canonicalNans(acc, n); }
};

template <typename T>
void runComplex(Kernel kernel, const Operands& operands) {
  if (kernel == Kernel::kProduct) return runBlocks<T>(ComplexProduct<T>(), operands, 2);
  runBlocks<T>(ComplexScaledSum<T>(operands.scaleReal, operands.scaleImag), operands, 2);
}

void reduceComplexTarget(Kernel kernel, bool isDouble, const Operands& operands) {
  if (isDouble) {
    runComplex<double>(kernel, operands);
  } else {
    runComplex<float>(kernel, operands);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace taco::data_internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace taco::data_internal {

HWY_EXPORT(reduceComplexTarget);

void reduceComplex(Kernel kernel, DType dtype, const Operands& operands) {
  HWY_DYNAMIC_DISPATCH(reduceComplexTarget)(kernel, dtype == DType::kComplex128, operands);
}

}  // namespace taco::data_internal
#endif
