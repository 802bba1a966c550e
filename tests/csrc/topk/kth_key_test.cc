#include "csrc/topk/kth_key.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "csrc/topk/select_kernels.h"
#include "tests/csrc/catch.h"

namespace taco::topk_internal {
namespace {

using Keys = std::vector<uint32_t>;

KthKey bySorting(const std::vector<float>& values, size_t k) {
  Keys keys;
  for (const float value : values) keys.push_back(keyOf(value));
  std::sort(keys.begin(), keys.end(), std::greater<>());
  const uint32_t key = keys[k - 1];
  const auto above = std::count_if(keys.begin(), keys.end(), [&](uint32_t x) { return x > key; });
  return {key, k - static_cast<size_t>(above)};
}

// Spread over all exponents, over one, over few steps of one, over two values; and one kind each
// with an outlier, which makes the first bins far too wide for the rest.
std::vector<std::vector<float>> inputs(size_t count) {
  std::mt19937 random(7);
  std::vector<std::vector<float>> all;
  for (const uint32_t mask : {0xffffffffu, 0x807fffffu, 0x80000fffu, 0x80000001u, 0u}) {
    std::vector<float> values(count);
    for (float& value : values) {
      value = std::bit_cast<float>(0x3f000000u ^ (static_cast<uint32_t>(random()) & mask));
    }
    all.push_back(values);
    values[count / 2] = std::numeric_limits<float>::infinity();
    all.push_back(values);
  }
  return all;
}

TEST_CASE("kth key: as sorting finds it, whatever the range") {
  for (const size_t count : {1, 2, 7, 511, 513, 20000}) {
    for (const std::vector<float>& values : inputs(count)) {
      uint32_t low = kSignBit;
      for (const float value : values) low = std::min(low, keyOf(value));
      const uint32_t high = largestKey(values.data(), count);
      for (const size_t k : {size_t{1}, (count + 1) / 2, (count + 99) / 100, count}) {
        CAPTURE(count, k);
        const KthKey expected = bySorting(values, k);
        for (const KthKey found : {kthKey(values.data(), count, k, low, high),
                                   kthKey(values.data(), count, k, 0, kSignBit - 1)}) {
          CHECK(found.key == expected.key);
          CHECK(found.ties == expected.ties);
        }
      }
    }
  }
}

TEST_CASE("kth key: a bound keeps the k largest and not too much else") {
  const size_t count = 20000;
  int exact = 0;
  int bounds = 0;
  for (const std::vector<float>& values : inputs(count)) {
    for (const size_t k : {size_t{1}, size_t{200}, count - 1, count}) {
      for (const size_t room : {k, std::min(count, 4 * k)}) {
        CAPTURE(k, room);
        const Bound bound = boundFor(values.data(), count, k, room);
        const KthKey expected = bySorting(values, k);
        if (bound.isExact) {
          CHECK(bound.kth.key == expected.key);
          CHECK(bound.kth.ties == expected.ties);
          ++exact;
        } else {
          const auto kept =
              static_cast<size_t>(std::count_if(values.begin(), values.end(), [&](float value) {
                return keyOf(value) >= bound.kth.key;
              }));
          CHECK(kept >= k);
          CHECK(kept <= room);
          ++bounds;
        }
      }
    }
  }
  CHECK(exact > 0);
  CHECK(bounds > 0);
}

}  // namespace
}  // namespace taco::topk_internal
