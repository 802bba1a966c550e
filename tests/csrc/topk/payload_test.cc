#include "csrc/topk/payload.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "csrc/base/error.h"
#include "tests/csrc/catch.h"

namespace taco {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("payload: indices, values, a multiple of 4 bytes") {
  const PayloadLayout floats{5, TopkValues::kFloat32};
  CHECK(floats.valueOffset() == 20);
  CHECK(floats.bytes() == 40);
  const PayloadLayout odd{5, TopkValues::kFloat16};
  CHECK(odd.valueOffset() == 20);
  CHECK(odd.bytes() == 32);
  const PayloadLayout even{4, TopkValues::kFloat16};
  CHECK(even.bytes() == 24);
  CHECK(PayloadLayout{0, TopkValues::kFloat16}.bytes() == 0);
}

TEST_CASE("payload: how many are chosen") {
  CHECK(topkCount(0, 0.5) == 0);
  CHECK(topkCount(1, 1e-9) == 1);
  CHECK(topkCount(99, 0.01) == 1);  // less than one: one
  CHECK(topkCount(199, 0.01) == 1);
  CHECK(topkCount(200, 0.01) == 2);
  CHECK(topkCount(1000, 0.5) == 500);
  CHECK(topkCount(7, 1) == 7);
  CHECK(topkCount(UINT32_MAX, 1) == UINT32_MAX);
  CHECK(topkCount(UINT32_MAX, std::nextafter(1.0, 0.0)) == UINT32_MAX - 1);
}

TEST_CASE("payload: a ratio that is none is refused") {
  for (const double ratio :
       {0.0, -0.0, -0.1, 1.0001, 2.0, std::numeric_limits<double>::quiet_NaN(),
        std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
    CAPTURE(ratio);
    CHECK_THROWS_WITH(topkCount(100, ratio), ContainsSubstring("the TopK ratio is"));
    CHECK_THROWS_WITH(topkCount(0, ratio), ContainsSubstring("above 0 and at most 1"));
    try {
      topkCount(100, ratio);
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kInvalidArgument);
    }
  }
}

}  // namespace
}  // namespace taco
