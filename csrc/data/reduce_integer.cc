// Integers of all widths, and bool. They wrap around: sums and products are computed unsigned,
// where C++ defines that. Bitwise operations do not care about widths and run over bytes.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "csrc/data/reduce_integer.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <type_traits>

#include "csrc/data/reduce_block-inl.h"
#include "csrc/data/reduce_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace taco::data_internal {
namespace HWY_NAMESPACE {

// Any byte but 0 is true; computed with, and stored, as 0 or 1.
struct Bool : Native<uint8_t> {
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const uint8_t* from) {
    return hn::Min(hn::LoadU(d, from), hn::Set(d, uint8_t{1}));
  }
};

template <typename T>
struct BlockOp {
  void before(T* /*x*/, size_t /*n*/) const {}
  void after(T* /*acc*/, size_t /*n*/) const {}
};

template <typename T>
struct BlockSumDivide : BlockOp<T> {
  int64_t divisor;

  explicit BlockSumDivide(int64_t theDivisor) : divisor(theDivisor) {}
  void combine(T* HWY_RESTRICT acc, const T* HWY_RESTRICT x, size_t n) const {
    using Unsigned = std::make_unsigned_t<T>;
    for (size_t i = 0; i < n; ++i) {
      acc[i] = static_cast<T>(
          static_cast<Unsigned>(static_cast<Unsigned>(acc[i]) + static_cast<Unsigned>(x[i])));
    }
  }
  // In 64 bits, as the number of ranks need not fit T.
  void after(T* acc, size_t n) const {
    using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    const Wide wide = static_cast<Wide>(divisor);
    for (size_t i = 0; i < n; ++i) acc[i] = static_cast<T>(static_cast<Wide>(acc[i]) / wide);
  }
};

template <typename T>
struct BlockProduct : BlockOp<T> {
  void combine(T* HWY_RESTRICT acc, const T* HWY_RESTRICT x, size_t n) const {
    // Never narrower than unsigned: short times short would be computed in int and overflow.
    using Unsigned = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
    for (size_t i = 0; i < n; ++i) {
      acc[i] = static_cast<T>(static_cast<Unsigned>(acc[i]) * static_cast<Unsigned>(x[i]));
    }
  }
};

template <typename T>
struct BlockMin : BlockOp<T> {
  void combine(T* HWY_RESTRICT acc, const T* HWY_RESTRICT x, size_t n) const {
    for (size_t i = 0; i < n; ++i) acc[i] = x[i] < acc[i] ? x[i] : acc[i];
  }
};

template <typename T>
struct BlockMax : BlockOp<T> {
  void combine(T* HWY_RESTRICT acc, const T* HWY_RESTRICT x, size_t n) const {
    for (size_t i = 0; i < n; ++i) acc[i] = acc[i] < x[i] ? x[i] : acc[i];
  }
};

template <typename T>
void runBitwise(Kernel kernel, const Operands& operands) {
  Operands bytes = operands;
  bytes.count = operands.count * sizeof(T);
  if (kernel == Kernel::kAnd) return runAnySrcs<Native<uint8_t>>(BitAnd(), bytes);
  if (kernel == Kernel::kOr) return runAnySrcs<Native<uint8_t>>(BitOr(), bytes);
  runAnySrcs<Native<uint8_t>>(BitXor(), bytes);
}

template <typename T>
void runInteger(Kernel kernel, const Operands& operands) {
  switch (kernel) {
    case Kernel::kSum:
      return runFewSrcs<Native<std::make_unsigned_t<T>>>(IntegerSum(), operands);
    case Kernel::kSumDivide:
      return runBlocks<T>(BlockSumDivide<T>(operands.divisor), operands);
    case Kernel::kProduct:
      return runBlocks<T>(BlockProduct<T>(), operands);
    case Kernel::kMin:
      return runBlocks<T>(BlockMin<T>(), operands);
    case Kernel::kMax:
      return runBlocks<T>(BlockMax<T>(), operands);
    case Kernel::kAnd:
    case Kernel::kOr:
    case Kernel::kXor:
      return runBitwise<T>(kernel, operands);
    case Kernel::kScaledSum:
      return;  // refused before: whyUnsupported
  }
}

void runBool(Kernel kernel, const Operands& operands) {
  switch (kernel) {
    case Kernel::kSum:
    case Kernel::kMax:
    case Kernel::kOr:
      return runAnySrcs<Bool>(BitOr(), operands);
    case Kernel::kProduct:
    case Kernel::kMin:
    case Kernel::kAnd:
      return runAnySrcs<Bool>(BitAnd(), operands);
    case Kernel::kXor:
      return runAnySrcs<Bool>(BitXor(), operands);
    case Kernel::kSumDivide:
    case Kernel::kScaledSum:
      return;  // refused before: whyUnsupported
  }
}

void reduceIntegerTarget(Kernel kernel, DType dtype, const Operands& operands) {
  switch (dtype) {
    case DType::kInt8:
      return runInteger<int8_t>(kernel, operands);
    case DType::kInt16:
      return runInteger<int16_t>(kernel, operands);
    case DType::kInt32:
      return runInteger<int32_t>(kernel, operands);
    case DType::kInt64:
      return runInteger<int64_t>(kernel, operands);
    case DType::kUInt8:
      return runInteger<uint8_t>(kernel, operands);
    case DType::kUInt16:
      return runInteger<uint16_t>(kernel, operands);
    case DType::kUInt32:
      return runInteger<uint32_t>(kernel, operands);
    case DType::kUInt64:
      return runInteger<uint64_t>(kernel, operands);
    case DType::kBool:
      return runBool(kernel, operands);
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kComplex64:
    case DType::kComplex128:
    case DType::kBytes1:
    case DType::kBytes2:
    case DType::kBytes4:
    case DType::kBytes8:
    case DType::kBytes16:
      return;  // not ours: reduce.cc chooses the file
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace taco::data_internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace taco::data_internal {

HWY_EXPORT(reduceIntegerTarget);

void reduceInteger(Kernel kernel, DType dtype, const Operands& operands) {
  HWY_DYNAMIC_DISPATCH(reduceIntegerTarget)(kernel, dtype, operands);
}

}  // namespace taco::data_internal
#endif
