#include "csrc/topk/select.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "csrc/base/error.h"
#include "csrc/base/format.h"
#include "csrc/topk/float_mode.h"
#include "csrc/topk/guess.h"
#include "csrc/topk/kth_key.h"
#include "csrc/topk/select_kernels.h"

namespace taco {

using topk_internal::accumulate;
using topk_internal::Bound;
using topk_internal::boundFor;
using topk_internal::choose;
using topk_internal::chooseAgain;
using topk_internal::compact;
using topk_internal::Found;
using topk_internal::Guess;
using topk_internal::keyOf;
using topk_internal::kInfinityKey;
using topk_internal::kthKey;
using topk_internal::KthKey;
using topk_internal::largestKey;
using topk_internal::roundToFloat16;

// Room for candidates: the guess may be well off without costing another pass.
constexpr size_t kRoomPerChosen = 4;
constexpr size_t kLeastRoom = 16384;
constexpr size_t kSamples = 16384;

struct Selector::Scratch {
  Guess guess;
  Found found;
};

namespace {

void checkArguments(ConstBuffer gradient, PayloadLayout layout) {
  if (gradient.dtype != DType::kFloat32 && gradient.dtype != DType::kFloat16 &&
      gradient.dtype != DType::kBFloat16) {
    throw Error(ErrorCode::kUnsupported,
                str("the gradient is ", name(gradient.dtype),
                    ": TopK selects from float32, float16 and bfloat16; reduce it densely"));
  }
  if (gradient.count > UINT32_MAX) {
    throw Error(ErrorCode::kInvalidArgument,
                str("the gradient has ", gradient.count,
                    " elements: TopK's indices have 32 bits; split it, or reduce it densely"));
  }
  const size_t leastK = gradient.count == 0 ? 0 : 1;
  if (layout.k < leastK || layout.k > gradient.count) {
    throw Error(ErrorCode::kInvalidArgument,
                str("k is ", layout.k, ", which is not from ", leastK, " to the ", gradient.count,
                    " elements of the gradient: take it from topkCount()"));
  }
}

// The key that about 1.5 k elements reach, judged by samples. Each is at a place of its own in its
// stretch of elements, so that no period of the data falls into step with them.
uint32_t sampledKey(const float* values, size_t count, size_t k) {
  const size_t samples = std::min(kSamples, count);
  std::vector<uint32_t> keys(samples);
  for (size_t i = 0; i < samples; ++i) {
    const size_t begin = i * count / samples;
    const size_t stretch = (i + 1) * count / samples - begin;
    const uint64_t scattered = (i + 1) * 0x9e3779b97f4a7c15u;
    keys[i] = keyOf(values[begin + (scattered >> 32) % stretch]);
  }
  const double share = static_cast<double>(k) / static_cast<double>(count);
  const double expected = share * static_cast<double>(samples);
  // And some standard deviations more, which count where k is small.
  const double wanted = 1.5 * expected + 8 + 2 * std::sqrt(expected);
  const size_t place = std::min(samples - 1, static_cast<size_t>(wanted));
  std::nth_element(keys.begin(), keys.begin() + static_cast<ptrdiff_t>(place), keys.end(),
                   std::greater<>());
  return std::max(1u, keys[place]);
}

// Reduces `found`, all elements of key >= minKey and at least k, to the k chosen ones. Returns the
// k-th key.
uint32_t chooseAmongCandidates(Found& found, size_t k, uint32_t minKey) {
  const float* const values = found.values.get();
  const uint32_t high = largestKey(values, found.count);
  const KthKey kth = kthKey(values, found.count, k, minKey, high);
  chooseAgain(kth.key, kth.ties, found);
  return kth.key;
}

// Whatever the values are.
uint32_t chooseByHistogram(const float* values, size_t count, size_t k, Found& found) {
  const Bound bound = boundFor(values, count, k, found.capacity);
  if (bound.isExact) {
    choose(values, count, bound.kth.key, bound.kth.ties, found);
    return bound.kth.key;
  }
  compact(values, count, bound.kth.key, found);
  return chooseAmongCandidates(found, k, bound.kth.key);
}

void send(const Found& chosen, float* residual, PayloadLayout layout, void* payload) {
  auto* const to = static_cast<uint8_t*>(payload);
  std::memcpy(to, chosen.indices.get(), layout.valueOffset());
  const uint32_t* const indices = chosen.indices.get();
  float* const values = chosen.values.get();
  if (layout.values == TopkValues::kFloat32) {
    std::memcpy(to + layout.valueOffset(), values, layout.k * sizeof(float));
    for (size_t j = 0; j < layout.k; ++j) residual[indices[j]] = 0;
    return;
  }
  const size_t end = layout.valueOffset() + layout.k * layout.valueBytes();
  std::memset(to + end, 0, layout.bytes() - end);
  roundToFloat16(values, layout.k, to + layout.valueOffset());
  for (size_t j = 0; j < layout.k; ++j) residual[indices[j]] = values[j];
}

}  // namespace

Selector::Selector() = default;
Selector::~Selector() = default;
Selector::Selector(Selector&&) noexcept = default;
Selector& Selector::operator=(Selector&&) noexcept = default;

float Selector::guess() const {
  return scratch_ ? std::bit_cast<float>(scratch_->guess.minKey()) : 0;
}

bool Selector::select(ConstBuffer gradient, float* residual, PayloadLayout layout, void* payload) {
  checkArguments(gradient, layout);
  if (gradient.count == 0) return true;
  const IeeeArithmetic ieee;
  if (!scratch_) scratch_ = std::make_unique<Scratch>();
  Found& found = scratch_->found;
  const size_t count = gradient.count;
  const size_t k = layout.k;
  found.reserve(std::min(count, std::max(kRoomPerChosen * k, kLeastRoom)));

  // All of key >= minKey, if there is room for them: the k largest are among them where they are k,
  // and where only zeros are missing.
  Guess& guess = scratch_->guess;
  uint32_t minKey = guess.minKey();
  bool complete = accumulate(gradient, residual, minKey, found);
  const auto suffice = [&] { return complete && (found.count >= k || minKey == 1); };
  if (!suffice()) {
    minKey = sampledKey(residual, count, k);
    complete = compact(residual, count, minKey, found);
  }
  if (!suffice()) {
    guess.learn(chooseByHistogram(residual, count, k, found));
  } else if (found.count >= k) {
    const size_t candidates = found.count;
    guess.learn(chooseAmongCandidates(found, k, minKey), k, minKey, candidates);
  } else {
    choose(residual, count, 0, k - found.count, found);  // the first zeros
    guess.learn(0);
  }
  const bool finite = largestKey(found.values.get(), found.count) < kInfinityKey;
  send(found, residual, layout, payload);
  return finite;
}

}  // namespace taco
