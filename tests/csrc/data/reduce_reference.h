// What a reduction should give, one element at a time and in the plainest words: the half types
// through double and std::nearbyint, no vectors, no bit tricks shared with the code under test.
#pragma once

#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "csrc/data/reduce.h"

namespace taco::testing {

using Bytes = std::vector<uint8_t>;

// `value` rounded to a binary format with `mantissaBits` stored bits, the smallest normal number
// 2^minExponent and the largest exponent maxExponent; overflow gives inf.
inline double roundedTo(double value, int mantissaBits, int minExponent, int maxExponent) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), minExponent);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, mantissaBits - exponent)),
                                    exponent - mantissaBits);
  if (std::fabs(rounded) >= std::ldexp(1.0, maxExponent + 1)) {
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  }
  return rounded;
}

struct ReferenceFloat16 {
  static float decode(uint16_t bits) {
    const int exponent = (bits >> 10) & 31;
    const int mantissa = bits & 1023;
    double value = 0;
    if (exponent == 31) {
      value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                            : std::numeric_limits<double>::quiet_NaN();
    } else if (exponent == 0) {
      value = std::ldexp(mantissa, -24);
    } else {
      value = std::ldexp(1024 + mantissa, exponent - 25);
    }
    return static_cast<float>(bits & 0x8000 ? -value : value);
  }
  static uint16_t encode(float value) {
    if (std::isnan(value)) return 0x7E00;
    const int sign = std::signbit(value) ? 0x8000 : 0;
    const double magnitude = std::fabs(roundedTo(value, 10, -14, 15));
    if (std::isinf(magnitude)) return static_cast<uint16_t>(sign | 0x7C00);
    if (magnitude < std::ldexp(1.0, -14)) {
      return static_cast<uint16_t>(sign | static_cast<int>(std::ldexp(magnitude, 24)));
    }
    const int exponent = std::ilogb(magnitude);
    const int mantissa = static_cast<int>(std::ldexp(magnitude, 10 - exponent)) - 1024;
    return static_cast<uint16_t>(sign | ((exponent + 15) << 10) | mantissa);
  }
};

struct ReferenceBFloat16 {
  static float decode(uint16_t bits) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
  }
  static uint16_t encode(float value) {
    if (std::isnan(value)) return 0x7FC0;
    const float rounded = static_cast<float>(roundedTo(value, 7, -126, 127));
    uint32_t wide;
    std::memcpy(&wide, &rounded, sizeof(wide));
    return static_cast<uint16_t>(wide >> 16);
  }
};

template <typename T>
T oneNan(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

template <typename T>
T reducedReal(const std::vector<T>& inputs, const Reduction& r) {
  const auto scaled = [&](T x) {
    return r.op == ReduceOp::kPremulSum && r.scaleInputs ? x * static_cast<T>(r.preScaleReal) : x;
  };
  T result = scaled(inputs[0]);
  for (size_t s = 1; s < inputs.size(); ++s) {
    const T x = scaled(inputs[s]);
    if (r.op == ReduceOp::kProduct) {
      result = result * x;
    } else if (r.op == ReduceOp::kMin) {
      if (std::isnan(x) || x < result) result = x;
    } else if (r.op == ReduceOp::kMax) {
      if (std::isnan(x) || x > result) result = x;
    } else {
      result = result + x;
    }
  }
  if (r.op == ReduceOp::kAvg && r.divisor != 1) result = result / static_cast<T>(r.divisor);
  return oneNan(result);
}

template <typename T>
std::complex<T> reducedComplex(const std::vector<std::complex<T>>& inputs, const Reduction& r) {
  const auto times = [](std::complex<T> x, std::complex<T> y) {
    return std::complex<T>(x.real() * y.real() - x.imag() * y.imag(),
                           x.real() * y.imag() + x.imag() * y.real());
  };
  const std::complex<T> factor(static_cast<T>(r.preScaleReal), static_cast<T>(r.preScaleImag));
  const auto scaled = [&](std::complex<T> x) {
    if (r.op != ReduceOp::kPremulSum || !r.scaleInputs) return x;
    if (r.preScaleImag != 0) return times(x, factor);
    return std::complex<T>(x.real() * factor.real(), x.imag() * factor.real());
  };
  std::complex<T> result = scaled(inputs[0]);
  for (size_t s = 1; s < inputs.size(); ++s) {
    const std::complex<T> x = scaled(inputs[s]);
    result = r.op == ReduceOp::kProduct
                 ? times(result, x)
                 : std::complex<T>(result.real() + x.real(), result.imag() + x.imag());
  }
  if (r.op == ReduceOp::kAvg && r.divisor != 1) {
    const T n = static_cast<T>(r.divisor);
    result = std::complex<T>(result.real() / n, result.imag() / n);
  }
  return std::complex<T>(oneNan(result.real()), oneNan(result.imag()));
}

// In 128 bits, where nothing overflows, and cut to T after every step.
template <typename T>
T reducedInteger(const std::vector<T>& inputs, const Reduction& r) {
  using Wide = unsigned __int128;
  T result = inputs[0];
  for (size_t s = 1; s < inputs.size(); ++s) {
    const T x = inputs[s];
    const Wide a = static_cast<Wide>(result);
    const Wide b = static_cast<Wide>(x);
    switch (r.op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
      case ReduceOp::kPremulSum:
        result = static_cast<T>(a + b);
        break;
      case ReduceOp::kProduct:
        result = static_cast<T>(a * b);
        break;
      case ReduceOp::kMin:
        result = std::min(result, x);
        break;
      case ReduceOp::kMax:
        result = std::max(result, x);
        break;
      case ReduceOp::kBand:
        result = static_cast<T>(a & b);
        break;
      case ReduceOp::kBor:
        result = static_cast<T>(a | b);
        break;
      case ReduceOp::kBxor:
        result = static_cast<T>(a ^ b);
        break;
    }
  }
  if (r.op == ReduceOp::kAvg) {
    result = static_cast<T>(static_cast<__int128>(result) / static_cast<__int128>(r.divisor));
  }
  return result;
}

inline uint8_t reducedBool(const std::vector<uint8_t>& inputs, const Reduction& r) {
  size_t trues = 0;
  for (uint8_t byte : inputs) trues += byte != 0 ? 1 : 0;
  switch (r.op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBor:
      return trues > 0 ? 1 : 0;
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kBand:
      return trues == inputs.size() ? 1 : 0;
    case ReduceOp::kBxor:
      return trues % 2 == 1 ? 1 : 0;
    case ReduceOp::kAvg:
    case ReduceOp::kPremulSum:
      break;
  }
  return 0xFF;  // has no meaning: never equal to what is stored
}

// `Element` as stored; `compute(std::vector<Element>)` gives the stored result.
template <typename Element, class Compute>
Bytes elementwise(const std::vector<Bytes>& srcs, const Compute& compute) {
  Bytes result(srcs[0].size());
  std::vector<Element> inputs(srcs.size());
  for (size_t at = 0; at < result.size(); at += sizeof(Element)) {
    for (size_t s = 0; s < srcs.size(); ++s) {
      std::memcpy(static_cast<void*>(&inputs[s]), srcs[s].data() + at, sizeof(Element));
    }
    const Element out = compute(inputs);
    std::memcpy(result.data() + at, &out, sizeof(Element));
  }
  return result;
}

template <class Half>
Bytes elementwiseHalf(const std::vector<Bytes>& srcs, const Reduction& r) {
  return elementwise<uint16_t>(srcs, [&](const std::vector<uint16_t>& inputs) {
    std::vector<float> wide;
    for (uint16_t bits : inputs) wide.push_back(Half::decode(bits));
    return Half::encode(reducedReal(wide, r));
  });
}

template <typename T>
Bytes elementwiseOf(const std::vector<Bytes>& srcs, const Reduction& r) {
  return elementwise<T>(srcs, [&](const std::vector<T>& inputs) {
    if constexpr (std::is_floating_point_v<T>) {
      return reducedReal(inputs, r);
    } else if constexpr (std::is_integral_v<T>) {
      return reducedInteger(inputs, r);
    } else {
      return reducedComplex(inputs, r);
    }
  });
}

// The documented exception: one source with nothing to scale or divide is a copy.
inline bool isCopy(size_t numSrcs, const Reduction& r) {
  return numSrcs == 1 && r.dtype != DType::kBool && r.divisor == 1 && !r.scaleInputs;
}

inline Bytes referenceReduce(const std::vector<Bytes>& srcs, const Reduction& r) {
  if (isCopy(srcs.size(), r)) return srcs[0];
  switch (r.dtype) {
    case DType::kFloat32:
      return elementwiseOf<float>(srcs, r);
    case DType::kFloat64:
      return elementwiseOf<double>(srcs, r);
    case DType::kFloat16:
      return elementwiseHalf<ReferenceFloat16>(srcs, r);
    case DType::kBFloat16:
      return elementwiseHalf<ReferenceBFloat16>(srcs, r);
    case DType::kComplex64:
      return elementwiseOf<std::complex<float>>(srcs, r);
    case DType::kComplex128:
      return elementwiseOf<std::complex<double>>(srcs, r);
    case DType::kInt8:
      return elementwiseOf<int8_t>(srcs, r);
    case DType::kInt16:
      return elementwiseOf<int16_t>(srcs, r);
    case DType::kInt32:
      return elementwiseOf<int32_t>(srcs, r);
    case DType::kInt64:
      return elementwiseOf<int64_t>(srcs, r);
    case DType::kUInt8:
      return elementwiseOf<uint8_t>(srcs, r);
    case DType::kUInt16:
      return elementwiseOf<uint16_t>(srcs, r);
    case DType::kUInt32:
      return elementwiseOf<uint32_t>(srcs, r);
    case DType::kUInt64:
      return elementwiseOf<uint64_t>(srcs, r);
    case DType::kBool:
      return elementwise<uint8_t>(
          srcs, [&](const std::vector<uint8_t>& inputs) { return reducedBool(inputs, r); });
    case DType::kBytes1:
    case DType::kBytes2:
    case DType::kBytes4:
    case DType::kBytes8:
    case DType::kBytes16:
      break;
  }
  return {};  // opaque: nothing to compute
}

}  // namespace taco::testing
