#include "csrc/data/half.h"

#include <cmath>
#include <limits>
#include <random>

#include "tests/csrc/catch.h"

namespace taco {
namespace {

bool isNanHalf(uint32_t bits, uint32_t infinity) { return (bits & 0x7fff) > infinity; }

TEST_CASE("every float16 and bfloat16 is a float and comes back") {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float wide = fromFloat16(half);
    const float brain = fromBFloat16(half);
    if (isNanHalf(bits, 0x7c00)) {
      if (!std::isnan(wide) || !isNanHalf(toFloat16(wide), 0x7c00)) FAIL(bits);
    } else if (toFloat16(wide) != half) {
      FAIL(bits << " became " << toFloat16(wide));
    }
    if (isNanHalf(bits, 0x7f80)) {
      if (!std::isnan(brain) || !isNanHalf(toBFloat16(brain), 0x7f80)) FAIL(bits);
    } else if (toBFloat16(brain) != half) {
      FAIL(bits << " became " << toBFloat16(brain));
    }
  }
  CHECK(fromFloat16(0x3c00) == 1.0f);
  CHECK(fromFloat16(0x0001) == std::ldexp(1.0f, -24));
  CHECK(fromFloat16(0x7bff) == 65504.0f);
  CHECK(fromFloat16(0xfc00) == -std::numeric_limits<float>::infinity());
  CHECK(fromBFloat16(0x3f80) == 1.0f);
}

// To nearest, ties to even: no other value is nearer, and of two equally near ones it is the even one.
template <typename From>
void checkRounding(float value, uint16_t rounded, From from, uint16_t largest, double step) {
  const uint16_t magnitude = rounded & 0x7fff;
  const double exact = std::abs(static_cast<double>(value));
  // Beyond the largest number lies one more, in place of infinity.
  const auto at = [&](int m) {
    return m > largest ? static_cast<double>(from(largest)) + step : static_cast<double>(from(static_cast<uint16_t>(m)));
  };
  const double distance = std::abs(at(magnitude) - exact);
  for (const int other : {magnitude - 1, magnitude + 1}) {
    if (other < 0 || other > largest + 1) continue;
    const double otherDistance = std::abs(at(other) - exact);
    if (otherDistance < distance || (otherDistance == distance && (magnitude & 1) != 0)) {
      FAIL(value << " became " << magnitude << ", but " << other << " is nearer");
    }
  }
  if (((rounded >> 15) != 0) != std::signbit(value)) FAIL("the sign of " << value);
}

TEST_CASE("rounding is to nearest, ties to even") {
  std::mt19937_64 random(1);
  const auto below = [&](uint64_t limit) { return random() % limit; };
  for (int i = 0; i < 200000; ++i) {
    // Any exponent of float16 and some beyond; every other time a tie between two of them.
    float value = std::ldexp(1.0f + static_cast<float>(below(1 << 23)) * 0x1p-23f,
                             static_cast<int>(below(46)) - 29);
    if (i % 2 == 0) {
      const auto low = static_cast<uint16_t>(below(0x7bff));
      value = (fromFloat16(low) + fromFloat16(static_cast<uint16_t>(low + 1))) / 2;
    }
    if (i % 3 == 0) value = -value;
    if (std::abs(value) < 65536) checkRounding(value, toFloat16(value), fromFloat16, 0x7bff, 32.0);
    if (i % 2 == 1) {
      checkRounding(value, toBFloat16(value), fromBFloat16, 0x7f7f, std::ldexp(1.0, 120));
    } else {
      const auto low = static_cast<uint16_t>(below(0x7f7f));
      const float tie = std::bit_cast<float>(static_cast<uint32_t>(low) << 16 | 0x8000);
      checkRounding(tie, toBFloat16(tie), fromBFloat16, 0x7f7f, std::ldexp(1.0, 120));
    }
  }
  CHECK(toFloat16(65519.996f) == 0x7bff);
  CHECK(toFloat16(65520.0f) == 0x7c00);
  CHECK(toFloat16(1e30f) == 0x7c00);
  CHECK(toFloat16(-1e30f) == 0xfc00);
  CHECK(toBFloat16(std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(toFloat16(std::ldexp(1.0f, -25)) == 0);  // a tie with the smallest one: to even
  CHECK(toFloat16(std::ldexp(1.5f, -25)) == 1);
}

}  // namespace
}  // namespace taco
