// What one rank keeps and what several add up to, over several steps.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "csrc/topk/scatter_add.h"
#include "csrc/topk/select.h"
#include "tests/csrc/catch.h"
#include "tests/csrc/topk/topk_reference.h"

namespace taco {
namespace {

using namespace taco::testing;
using Floats = std::vector<float>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A rank with its residual.
struct Rank {
  explicit Rank(size_t count) : residual(count) {}
  Bytes select(const Floats& gradient, PayloadLayout layout) {
    Bytes payload(layout.bytes());
    finite = selector.select({gradient.data(), gradient.size(), DType::kFloat32}, residual.data(),
                             layout, payload.data());
    return payload;
  }
  Selector selector;
  Floats residual;
  bool finite = true;
};

struct Sum {
  Floats dense;
  bool finite;
};
Sum addUp(const std::vector<Bytes>& payloads, PayloadLayout layout, size_t count, int64_t divisor) {
  std::vector<const void*> pointers;
  for (const Bytes& payload : payloads) pointers.push_back(payload.data());
  Sum sum{Floats(count, 99.0f), true};
  sum.finite = scatterAdd(pointers, layout, {sum.dense.data(), count, DType::kFloat32}, divisor);
  return sum;
}

TEST_CASE("error feedback: two ranks with 4 3 2 1 and k = 1 averaged") {
  // By hand, the same on both ranks:
  //   step 1: sum [4 3 2 1], sent 4 at 0, residual [0 3 2 1]
  //   step 2: sum [4 6 4 2], sent 6 at 1, residual [4 0 4 2]
  //   step 3: sum [8 3 6 3], sent 8 at 0, residual [0 3 6 3]
  const Floats gradient = {4, 3, 2, 1};
  const PayloadLayout layout{1, TopkValues::kFloat32};
  Rank a(4);
  Rank b(4);
  Floats total(4);
  const std::vector<Floats> expected = {{4, 0, 0, 0}, {0, 6, 0, 0}, {8, 0, 0, 0}};
  for (const Floats& step : expected) {
    const Sum sum = addUp({a.select(gradient, layout), b.select(gradient, layout)}, layout, 4, 2);
    CHECK(sum.dense == step);
    for (size_t i = 0; i < 4; ++i) total[i] += sum.dense[i];
  }
  CHECK(total == Floats{12, 6, 0, 0});
  CHECK(a.residual == Floats{0, 3, 6, 3});
  CHECK(b.residual == a.residual);
}

TEST_CASE("error feedback: after T steps with the same gradient, sent + residual = T times it") {
  // Small integers, so that the sums are exact in float32 and float16.
  constexpr size_t kCount = 1000;
  Floats gradient(kCount);
  for (size_t i = 0; i < kCount; ++i) gradient[i] = static_cast<float>(i * 37 % 41) - 20;
  for (const TopkValues values : {TopkValues::kFloat32, TopkValues::kFloat16}) {
    const PayloadLayout layout{10, values};
    Rank rank(kCount);
    Floats sent(kCount);
    constexpr int kSteps = 50;
    for (int step = 0; step < kSteps; ++step) {
      const Sum sum = addUp({rank.select(gradient, layout)}, layout, kCount, 1);
      for (size_t i = 0; i < kCount; ++i) sent[i] += sum.dense[i];
    }
    int wrong = 0;
    for (size_t i = 0; i < kCount; ++i) {
      wrong += sent[i] + rank.residual[i] != kSteps * gradient[i];
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("error feedback: float16 values saturate, and what they lose stays") {
  const PayloadLayout layout{1, TopkValues::kFloat16};
  const auto send = [&](float value) {
    Rank rank(1);
    const Bytes payload = rank.select({value}, layout);
    CHECK(rank.finite);
    const float sent = valueOf(payload.data(), layout, 0);
    CHECK(std::isfinite(sent));
    CHECK(sent + rank.residual[0] == value);
    return sent;
  };
  CHECK(send(70000) == 65504);
  CHECK(send(-70000) == -65504);
  CHECK(send(65519.996f) == 65504);
  CHECK(send(1e-9f) == 0);
  CHECK(send(-1e-9f) == 0);
  CHECK(send(6e-8f) == 0x1p-24f);
  CHECK(send(1.0f / 3) == 0.333251953125f);
  CHECK(send(std::numeric_limits<float>::max()) == 65504);
  // Every power of two, and the odd multiples of its last place on both sides.
  for (int exponent = -149; exponent < 128; ++exponent) {
    const float power = std::ldexp(1.0f, exponent);
    for (const float factor : {1.0f, 1 + 0x1p-23f, 1 + 0x1p-22f, 1.5f, 1.9999999f, 1 - 0x1p-24f}) {
      send(power * factor);
      send(-power * factor);
    }
  }

  // 70000 over and over: the remainder is sent in the end.
  Rank rank(1);
  double sent = 0;
  rank.residual[0] = 70000;
  for (int step = 0; step < 2; ++step) {
    sent += valueOf(rank.select({0}, layout).data(), layout, 0);
  }
  CHECK(sent == 70000);
  CHECK(rank.residual[0] == 0);
}

TEST_CASE("error feedback: what is not finite is sent first, seen by all, and gone after a reset") {
  constexpr size_t kCount = 300;
  for (const TopkValues values : {TopkValues::kFloat32, TopkValues::kFloat16}) {
    const PayloadLayout layout{3, values};
    for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
      for (const size_t many : {1, 3, 7}) {
        CAPTURE(bad, many, layout.valueBytes());
        Rank clean(kCount);
        Rank sick(kCount);
        Floats gradient(kCount, 1.0f);
        Floats spoilt = gradient;
        for (size_t i = 0; i < many; ++i) spoilt[20 * i + 5] = bad;
        const Sum sum =
            addUp({clean.select(gradient, layout), sick.select(spoilt, layout)}, layout, kCount, 2);
        CHECK(clean.finite);
        CHECK_FALSE(sick.finite);
        CHECK_FALSE(sum.finite);
        for (size_t i = 0; i < std::min<size_t>(many, 3); ++i) {
          const float expected = std::isnan(bad) ? kNan : bad;
          CHECK(std::bit_cast<uint32_t>(sum.dense[20 * i + 5]) ==
                std::bit_cast<uint32_t>(expected));
          CHECK(sick.residual[20 * i + 5] == 0);
        }
        // As the caller does: all ranks forget this buffer's residual.
        clean.residual.assign(kCount, 0);
        sick.residual.assign(kCount, 0);
        const Sum next = addUp({clean.select(gradient, layout), sick.select(gradient, layout)},
                               layout, kCount, 2);
        CHECK(next.finite);
        CHECK(next.dense[0] == 1);
      }
    }
  }
  // A sum of finite numbers that is none itself.
  const float largest = std::numeric_limits<float>::max();
  Rank rank(2);
  rank.residual[1] = largest;
  rank.select({0, largest}, {1, TopkValues::kFloat32});
  CHECK_FALSE(rank.finite);
}

}  // namespace
}  // namespace taco
