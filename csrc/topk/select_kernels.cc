// The loops of the selection. All of them find elements by comparing keys as integers, so that NaN
// is found too, and compact them without branching: the vector that is left of the found ones is
// stored whole, and the next one overwrites what was too much. (Compressing straight to memory is
// far slower on AMD's AVX-512.)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "csrc/topk/select_kernels.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "csrc/data/reduce_ops-inl.h"
#include "csrc/data/storage-inl.h"
#include "csrc/topk/select_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace taco::topk_internal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace data = data_internal::HWY_NAMESPACE;

// Keys are below 2^31, and all instruction sets compare signed integers.
template <class D>
HWY_INLINE hn::Vec<hn::Rebind<int32_t, D>> keys(D /*d*/, hn::Vec<D> value) {
  const hn::Rebind<int32_t, D> d32;
  return hn::And(hn::BitCast(d32, value), hn::Set(d32, 0x7fffffff));
}

// Appends to `found` the lanes of `mask` of the `d` elements from `index` on.
template <class D, class M>
HWY_INLINE void append(D d, hn::Vec<D> value, hn::Vec<hn::Rebind<uint32_t, D>> index, M mask,
                       uint32_t* indices, float* values, size_t& count) {
  const hn::Rebind<uint32_t, D> dIndex;
  const hn::Rebind<int32_t, D> d32;
  // With few lanes the usual vector has nothing to append.
  if (hn::Lanes(d) <= 8 && hn::AllFalse(d32, mask)) return;
  hn::StoreU(hn::Compress(value, hn::RebindMask(d, mask)), d, values + count);
  hn::StoreU(hn::Compress(index, hn::RebindMask(dIndex, mask)), dIndex, indices + count);
  count += hn::CountTrue(d32, mask);
}

// ---- What is looked through.

// The sums of a residual and a gradient, which are stored on the way.
template <class Storage>
struct Sums {
  const uint8_t* gradient;
  float* residual;

  template <class D>
  HWY_INLINE hn::Vec<D> get(D d, size_t at) const {
    const auto sum =
        hn::Add(hn::LoadU(d, residual + at), Storage::load(d, gradient + at * Storage::kBytes));
    const auto plain = data::canonicalNan(d, sum);
    hn::StoreU(plain, d, residual + at);
    return plain;
  }
  const float* alignTo() const { return residual; }
};

struct Values {
  const float* values;

  template <class D>
  HWY_INLINE hn::Vec<D> get(D d, size_t at) const {
    return hn::LoadU(d, values + at);
  }
  const float* alignTo() const { return values; }
};

// ---- Passes over all elements.

template <class Source, class D>
HWY_INLINE void compactPart(const Source& source, D d, size_t& at, size_t end, int32_t above,
                            Found& found) {
  const hn::Rebind<int32_t, D> d32;
  const hn::Rebind<uint32_t, D> dIndex;
  const size_t lanes = hn::Lanes(d);
  const auto limit = hn::Set(d32, above);
  const auto step = hn::Set(dIndex, static_cast<uint32_t>(lanes));
  auto index = hn::Iota(dIndex, static_cast<uint32_t>(at));
  uint32_t* const indices = found.indices.get();
  float* const values = found.values.get();
  size_t count = found.count;
  for (; at + lanes <= end; at += lanes) {
    const auto value = source.get(d, at);
    append(d, value, index, hn::Gt(keys(d, value), limit), indices, values, count);
    index = hn::Add(index, step);
  }
  found.count = count;
}

template <class Source, class D>
HWY_INLINE void sumPart(const Source& source, D d, size_t& at, size_t end) {
  for (; at + hn::Lanes(d) <= end; at += hn::Lanes(d)) source.get(d, at);
}

// `sumOn`: after `found` is full the rest is still to be got, for what that does on the way.
template <bool kSumOn, class Source>
HWY_INLINE bool compactAll(const Source& source, size_t count, uint32_t minKey, Found& found) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const size_t bytes = hn::Lanes(d) * sizeof(float);
  const auto above = static_cast<int32_t>(minKey) - 1;
  const size_t head =
      (bytes - reinterpret_cast<uintptr_t>(source.alignTo()) % bytes) % bytes / sizeof(float);
  found.count = 0;
  size_t at = 0;
  compactPart(source, one, at, std::min(head, count), above, found);
  while (at + hn::Lanes(d) <= count && found.count <= found.capacity) {
    compactPart(source, d, at, std::min(at + kBlock, count), above, found);
  }
  if (found.count > found.capacity) {
    if constexpr (kSumOn) {
      sumPart(source, d, at, count);
      sumPart(source, one, at, count);
    }
    return false;
  }
  compactPart(source, one, at, count, above, found);
  return found.count <= found.capacity;
}

bool accumulateTarget(ConstBuffer gradient, float* residual, uint32_t minKey, Found& found) {
  const auto* from = static_cast<const uint8_t*>(gradient.data);
  if (gradient.dtype == DType::kFloat16) {
    const Sums<data::Float16> sums{from, residual};
    return compactAll<true>(sums, gradient.count, minKey, found);
  }
  if (gradient.dtype == DType::kBFloat16) {
    const Sums<data::BFloat16> sums{from, residual};
    return compactAll<true>(sums, gradient.count, minKey, found);
  }
  const Sums<data::Native<float>> sums{from, residual};
  return compactAll<true>(sums, gradient.count, minKey, found);
}

bool compactTarget(const float* values, size_t count, uint32_t minKey, Found& found) {
  return compactAll<false>(Values{values}, count, minKey, found);
}

uint32_t largestKeyTarget(const float* values, size_t count) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<int32_t, decltype(d)> d32;
  const size_t lanes = hn::Lanes(d);
  auto largest = hn::Zero(d32);
  size_t at = 0;
  for (; at + lanes <= count; at += lanes) {
    largest = hn::Max(largest, keys(d, hn::LoadU(d, values + at)));
  }
  auto key = static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(d32, largest)));
  for (; at < count; ++at) key = std::max(key, keyOf(values[at]));
  return key;
}

// ---- The choice of exactly k.

// Those of key >= kthKey for as long as there are ties to take, in whole vectors of `d`.
template <class D>
HWY_INLINE void chooseWithTies(D d, const float* from, const uint32_t* fromIndices, size_t& at,
                               size_t end, int32_t kthKey, size_t& ties, Found& found) {
  const hn::Rebind<int32_t, D> d32;
  const hn::Rebind<uint32_t, D> dIndex;
  const size_t lanes = hn::Lanes(d);
  for (; at + lanes <= end; at += lanes) {
    const auto value = hn::LoadU(d, from + at);
    const auto key = keys(d, value);
    const size_t here = hn::CountTrue(d32, hn::Eq(key, hn::Set(d32, kthKey)));
    if (here > ties) return;
    ties -= here;
    const auto index = fromIndices == nullptr ? hn::Iota(dIndex, static_cast<uint32_t>(at))
                                              : hn::LoadU(dIndex, fromIndices + at);
    append(d, value, index, hn::Gt(key, hn::Set(d32, kthKey - 1)), found.indices.get(),
           found.values.get(), found.count);
  }
}

template <class D>
HWY_INLINE void chooseAbove(D d, const float* from, const uint32_t* fromIndices, size_t& at,
                            size_t end, int32_t kthKey, Found& found) {
  const hn::Rebind<uint32_t, D> dIndex;
  const hn::Rebind<int32_t, D> d32;
  const size_t lanes = hn::Lanes(d);
  const auto limit = hn::Set(d32, kthKey);
  size_t count = found.count;
  for (; at + lanes <= end; at += lanes) {
    const auto value = hn::LoadU(d, from + at);
    const auto index = fromIndices == nullptr ? hn::Iota(dIndex, static_cast<uint32_t>(at))
                                              : hn::LoadU(dIndex, fromIndices + at);
    append(d, value, index, hn::Gt(keys(d, value), limit), found.indices.get(), found.values.get(),
           count);
  }
  found.count = count;
}

// `from` may be found.values itself: what is written never overtakes what is read.
HWY_INLINE void chooseAll(const float* from, const uint32_t* fromIndices, size_t count,
                          uint32_t kthKey, size_t ties, Found& found) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const auto key = static_cast<int32_t>(kthKey);
  size_t at = 0;
  found.count = 0;
  chooseWithTies(d, from, fromIndices, at, count, key, ties, found);
  // The vector in which the ties run out, or the rest.
  const size_t vectorEnd = std::min(at + hn::Lanes(d), count);
  chooseWithTies(one, from, fromIndices, at, vectorEnd, key, ties, found);
  chooseAbove(one, from, fromIndices, at, vectorEnd, key, found);
  chooseAbove(d, from, fromIndices, at, count, key, found);
  chooseAbove(one, from, fromIndices, at, count, key, found);
}

void chooseTarget(const float* values, size_t count, uint32_t kthKey, size_t ties, Found& found) {
  chooseAll(values, nullptr, count, kthKey, ties, found);
}

void chooseAgainTarget(uint32_t kthKey, size_t ties, Found& found) {
  chooseAll(found.values.get(), found.indices.get(), found.count, kthKey, ties, found);
}

// ---- float16 values.

template <class D>
HWY_INLINE void roundPart(D d, float* values, size_t& at, size_t end, uint8_t* halves) {
  const hn::Rebind<int32_t, D> d32;
  const auto key = [&](float value) { return hn::Set(d32, static_cast<int32_t>(keyOf(value))); };
  for (; at + hn::Lanes(d) <= end; at += hn::Lanes(d)) {
    const auto value = hn::LoadU(d, values + at);
    const auto magnitude = keys(d, value);
    const auto sign = hn::Xor(hn::BitCast(d32, value), magnitude);
    const auto finite = hn::Lt(magnitude, hn::Set(d32, static_cast<int32_t>(kInfinityKey)));
    // 65504 is no multiple of 64, the spacing of float32 there: value + rest would be a tie.
    const auto coarse = hn::And(hn::Gt(magnitude, hn::Sub(key(0x1p29f), hn::Set(d32, 1))),
                                hn::Lt(magnitude, key(0x1p30f)));
    const auto limit = hn::IfThenElse(coarse, key(65472.0f), key(65504.0f));
    const auto limited = hn::IfThenElse(finite, hn::Min(magnitude, limit), magnitude);
    data::Float16::store(d, hn::BitCast(d, hn::Or(limited, sign)), halves + at * 2);
    const auto sent = data::Float16::load(d, halves + at * 2);
    const auto rest = hn::IfThenElseZero(hn::RebindMask(d, finite), hn::Sub(value, sent));
    hn::StoreU(rest, d, values + at);
  }
}

void roundToFloat16Target(float* values, size_t count, uint8_t* halves) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  size_t at = 0;
  roundPart(d, values, at, count, halves);
  roundPart(one, values, at, count, halves);
}

}  // namespace HWY_NAMESPACE
}  // namespace taco::topk_internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace taco::topk_internal {

HWY_EXPORT(accumulateTarget);
HWY_EXPORT(compactTarget);
HWY_EXPORT(chooseTarget);
HWY_EXPORT(chooseAgainTarget);
HWY_EXPORT(largestKeyTarget);
HWY_EXPORT(roundToFloat16Target);

bool accumulate(ConstBuffer gradient, float* residual, uint32_t minKey, Found& found) {
  return HWY_DYNAMIC_DISPATCH(accumulateTarget)(gradient, residual, minKey, found);
}
bool compact(const float* values, size_t count, uint32_t minKey, Found& found) {
  return HWY_DYNAMIC_DISPATCH(compactTarget)(values, count, minKey, found);
}
void choose(const float* values, size_t count, uint32_t kthKey, size_t ties, Found& found) {
  HWY_DYNAMIC_DISPATCH(chooseTarget)(values, count, kthKey, ties, found);
}
void chooseAgain(uint32_t kthKey, size_t ties, Found& found) {
  HWY_DYNAMIC_DISPATCH(chooseAgainTarget)(kthKey, ties, found);
}
uint32_t largestKey(const float* values, size_t count) {
  return HWY_DYNAMIC_DISPATCH(largestKeyTarget)(values, count);
}
void roundToFloat16(float* values, size_t count, uint8_t* halves) {
  HWY_DYNAMIC_DISPATCH(roundToFloat16Target)(values, count, halves);
}

}  // namespace taco::topk_internal
#endif
