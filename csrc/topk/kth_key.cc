#include "csrc/topk/kth_key.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <vector>

#include "csrc/topk/select_kernels.h"

namespace taco::topk_internal {
namespace {

constexpr int kBinBits = 11;
constexpr size_t kBins = size_t{1} << kBinBits;
// Few enough keys for a comparison sort to be quicker than another histogram.
constexpr size_t kFew = 512;

// The keys from `low` to `high` in bins of 2^shift.
struct Range {
  uint32_t low;
  uint32_t high;
  int shift() const { return std::max(0, static_cast<int>(std::bit_width(high - low)) - kBinBits); }
  bool holds(uint32_t key) const { return key - low <= high - low; }
};

using Bins = std::array<size_t, kBins>;

// `keyAt(i)`: all of them, or only those in the range. Four tables: neighbours are often of one
// bin, and an increment would wait for the one before.
template <bool kAllInRange, class KeyAt>
Bins histogram(KeyAt keyAt, size_t count, Range range) {
  constexpr size_t kTables = 4;
  std::array<std::array<uint32_t, kBins + 1>, kTables> tables{};  // the last bin: out of range
  const int shift = range.shift();
  const auto binOf = [&](size_t i) -> size_t {
    const uint32_t key = keyAt(i);
    if constexpr (!kAllInRange) {
      if (!range.holds(key)) return kBins;
    }
    return (key - range.low) >> shift;
  };
  size_t i = 0;
  for (; i + kTables <= count; i += kTables) {
    for (size_t t = 0; t < kTables; ++t) ++tables[t][binOf(i + t)];
  }
  for (; i < count; ++i) ++tables[0][binOf(i)];
  Bins bins{};
  for (size_t bin = 0; bin < kBins; ++bin) {
    for (const auto& table : tables) bins[bin] += table[bin];
  }
  return bins;
}

// The bin of the k-th largest; `rank` becomes its place within the bin, counted from the largest.
struct Place {
  Range range;
  size_t inBin;
};
Place placeOf(const Bins& bins, Range range, size_t& rank) {
  size_t bin = kBins - 1;
  while (bins[bin] < rank) rank -= bins[bin--];
  const int shift = range.shift();
  const uint32_t low = range.low + (static_cast<uint32_t>(bin) << shift);
  const uint32_t high = low + ((uint32_t{1} << shift) - 1);
  return {{low, std::min(high, range.high)}, bins[bin]};
}

// Of the `rank` largest of these keys; reorders them.
KthKey amongFew(std::vector<uint32_t>& keys, size_t rank) {
  std::nth_element(keys.begin(), keys.begin() + static_cast<ptrdiff_t>(rank - 1), keys.end(),
                   std::greater<>());
  const uint32_t key = keys[rank - 1];
  const auto above = std::count_if(keys.begin(), keys.end(), [&](uint32_t x) { return x > key; });
  return {key, rank - static_cast<size_t>(above)};
}

}  // namespace

KthKey kthKey(const float* values, size_t count, size_t k, uint32_t low, uint32_t high) {
  size_t rank = k;
  const auto keyAt = [&](size_t i) { return keyOf(values[i]); };
  Range range{low, high};
  Place place = placeOf(histogram<true>(keyAt, count, range), range, rank);
  if (range.shift() == 0) return {place.range.low, rank};

  std::vector<uint32_t> keys;
  keys.reserve(place.inBin);
  for (size_t i = 0; i < count; ++i) {
    if (place.range.holds(keyAt(i))) keys.push_back(keyAt(i));
  }
  while (keys.size() > kFew) {
    range = place.range;
    place = placeOf(histogram<true>([&](size_t i) { return keys[i]; }, keys.size(), range), range,
                    rank);
    if (range.shift() == 0) return {place.range.low, rank};
    std::erase_if(keys, [&](uint32_t key) { return !place.range.holds(key); });
  }
  return amongFew(keys, rank);
}

Bound boundFor(const float* values, size_t count, size_t k, size_t room) {
  size_t rank = k;
  const auto keyAt = [&](size_t i) { return keyOf(values[i]); };
  Range range{0, kSignBit - 1};
  Place place = placeOf(histogram<true>(keyAt, count, range), range, rank);
  while (true) {
    if (range.shift() == 0) return {{place.range.low, rank}, true};
    // k - rank are above the bin.
    if (k - rank + place.inBin <= room) return {{place.range.low, 0}, false};
    range = place.range;
    place = placeOf(histogram<false>(keyAt, count, range), range, rank);
  }
}

}  // namespace taco::topk_internal
