// What the vectorised loop does to elements: an Op has before(x) for every source, combine(a, x)
// from left to right, and after(result).

// The toggling include guard of Highway: once for every target.
#if defined(TACO_CSRC_DATA_REDUCE_OPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TACO_CSRC_DATA_REDUCE_OPS_INL_H_
#undef TACO_CSRC_DATA_REDUCE_OPS_INL_H_
#else
#define TACO_CSRC_DATA_REDUCE_OPS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace taco::data_internal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// NaN results lose sign and payload: see reduce.h.
template <class D>
HWY_INLINE hn::Vec<D> canonicalNan(D d, hn::Vec<D> value) {
  using T = hn::TFromD<D>;
  return hn::IfThenElse(hn::Eq(value, value), value,
                        hn::Set(d, std::numeric_limits<T>::quiet_NaN()));
}

struct FloatOp {
  template <class D>
  HWY_INLINE hn::Vec<D> before(D /*d*/, hn::Vec<D> x) const {
    return x;
  }
  template <class D>
  HWY_INLINE hn::Vec<D> after(D d, hn::Vec<D> result) const {
    return canonicalNan(d, result);
  }
};

struct FloatSum : FloatOp {
  template <class D>
  HWY_INLINE hn::Vec<D> combine(D /*d*/, hn::Vec<D> a, hn::Vec<D> x) const {
    return hn::Add(a, x);
  }
};

template <typename Lane>
struct FloatScaledSum : FloatSum {
  explicit FloatScaledSum(double theFactor) : factor(static_cast<Lane>(theFactor)) {}
  template <class D>
  HWY_INLINE hn::Vec<D> before(D d, hn::Vec<D> x) const {
    return hn::Mul(x, hn::Set(d, factor));
  }
  Lane factor;
};

template <typename Lane>
struct FloatSumDivide : FloatSum {
  explicit FloatSumDivide(int64_t theDivisor) : divisor(static_cast<Lane>(theDivisor)) {}
  template <class D>
  HWY_INLINE hn::Vec<D> after(D d, hn::Vec<D> result) const {
    return canonicalNan(d, hn::Div(result, hn::Set(d, divisor)));
  }
  Lane divisor;
};

struct FloatProduct : FloatOp {
  template <class D>
  HWY_INLINE hn::Vec<D> combine(D /*d*/, hn::Vec<D> a, hn::Vec<D> x) const {
    return hn::Mul(a, x);
  }
};

// Spelled out with comparisons and not with Min / Max, whose answer for NaN and for -0 against +0
// differs between instruction sets. A NaN in `x` is taken; a NaN in `a` stays, as no comparison
// with it is true; of two equal values the first stays. (Not with Ne: Highway 1.0's is false for
// NaN with AVX-512.)
struct FloatMin : FloatOp {
  template <class D>
  HWY_INLINE hn::Vec<D> combine(D /*d*/, hn::Vec<D> a, hn::Vec<D> x) const {
    return hn::IfThenElse(hn::Lt(x, a), x, hn::IfThenElse(hn::Eq(x, x), a, x));
  }
};
struct FloatMax : FloatOp {
  template <class D>
  HWY_INLINE hn::Vec<D> combine(D /*d*/, hn::Vec<D> a, hn::Vec<D> x) const {
    return hn::IfThenElse(hn::Lt(a, x), x, hn::IfThenElse(hn::Eq(x, x), a, x));
  }
};

struct IntegerOp {
  template <class D>
  HWY_INLINE hn::Vec<D> before(D /*d*/, hn::Vec<D> x) const {
    return x;
  }
  template <class D>
  HWY_INLINE hn::Vec<D> after(D /*d*/, hn::Vec<D> result) const {
    return result;
  }
};
struct IntegerSum : IntegerOp {
  template <class D>
  HWY_INLINE hn::Vec<D> combine(D /*d*/, hn::Vec<D> a, hn::Vec<D> x) const {
    return hn::Add(a, x);
  }
};
struct BitAnd : IntegerOp {
  template <class D>
  HWY_INLINE hn::Vec<D> combine(D /*d*/, hn::Vec<D> a, hn::Vec<D> x) const {
    return hn::And(a, x);
  }
};
struct BitOr : IntegerOp {
  template <class D>
  HWY_INLINE hn::Vec<D> combine(D /*d*/, hn::Vec<D> a, hn::Vec<D> x) const {
    return hn::Or(a, x);
  }
};
struct BitXor : IntegerOp {
  template <class D>
  HWY_INLINE hn::Vec<D> combine(D /*d*/, hn::Vec<D> a, hn::Vec<D> x) const {
    return hn::Xor(a, x);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace taco::data_internal
HWY_AFTER_NAMESPACE();

#endif  // the toggling guard
