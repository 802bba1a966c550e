#include "csrc/topk/guess.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "csrc/topk/select.h"
#include "tests/csrc/catch.h"

namespace taco {
namespace {

using topk_internal::Guess;
using topk_internal::keyOf;

TEST_CASE("guess: below the k-th key, never 0") {
  Guess guess;
  CHECK(guess.minKey() == 1);
  guess.learn(keyOf(10.0f));
  CHECK(guess.minKey() < keyOf(10.0f));
  CHECK(guess.minKey() >= keyOf(7.5f));
  for (const float kth :
       {0.0f, std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    guess.learn(keyOf(kth));
    CHECK(guess.minKey() == 1);
    guess.learn(keyOf(kth), 100, 1, 100);
    CHECK(guess.minKey() == 1);
  }
}

TEST_CASE("guess: what is far too low comes closer, unless the k-th key moves") {
  Guess guess;
  guess.learn(keyOf(10.0f));
  guess.learn(keyOf(10.0f), 1000, keyOf(9.0f), 11000);
  CHECK(guess.minKey() > keyOf(9.9f));
  CHECK(guess.minKey() < keyOf(10.0f));
  guess.learn(keyOf(10.5f), 1000, keyOf(9.9f), 11000);  // 5 % up
  CHECK(guess.minKey() < keyOf(9.5f));
}

// Nothing but speed depends on it, but that a lot: the case all this is made for.
TEST_CASE(
    "guess: with error feedback it soon finds k candidates, and less than four times as many") {
  constexpr size_t kCount = 200000;
  const PayloadLayout layout{topkCount(kCount, 0.01), TopkValues::kFloat32};
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> noise(kCount + 16 * 40);
  for (float& value : noise) value = normal(random);

  Selector selector;
  std::vector<float> residual(kCount);
  std::vector<char> payload(layout.bytes());
  int good = 0;
  for (size_t step = 0; step < 40; ++step) {
    const float* const gradient = noise.data() + 16 * step;
    const float guess = selector.guess();
    size_t candidates = 0;
    for (size_t i = 0; i < kCount; ++i) candidates += std::fabs(residual[i] + gradient[i]) >= guess;
    selector.select({gradient, kCount, DType::kFloat32}, residual.data(), layout, payload.data());
    good += step >= 10 && candidates >= layout.k && candidates <= 4 * layout.k;
  }
  CHECK(good == 30);
}

}  // namespace
}  // namespace taco
