// The loops of the scatter-add. The dense range is worked through in blocks that fit into the L1
// cache: a block of sums, all zero, takes from every payload in turn what falls into it, is written
// to the result, and zeroed on the way. So the result is written once, in order.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "csrc/topk/scatter_kernels.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "csrc/data/prefetch.h"
#include "csrc/data/reduce_ops-inl.h"
#include "csrc/data/storage-inl.h"
#include "csrc/topk/scatter_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace taco::topk_internal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace data = data_internal::HWY_NAMESPACE;

// Elements that are added up at a time.
constexpr size_t kSumBlock = 2048;

// From this size on the result goes past the caches: it is not read again before they have lost it,
// and the lines need not be fetched to be overwritten.
constexpr size_t kStreamBytes = size_t{4} << 20;

template <typename T>
HWY_INLINE T at(const uint8_t* from, size_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof(T), sizeof value);
  return value;
}

// ---- Inspection.

template <class D>
HWY_INLINE bool ascendPart(D d, const uint8_t* indices, size_t& done, size_t end) {
  const auto all = hn::Set(d, ~uint32_t{0});
  auto right = all;
  for (; done + hn::Lanes(d) <= end; done += hn::Lanes(d)) {
    const auto here = data::loadAnywhere(d, indices + done * 4);
    const auto next = data::loadAnywhere(d, indices + done * 4 + 4);
    right = hn::And(right, hn::VecFromMask(d, hn::Lt(here, next)));
  }
  return hn::AllTrue(d, hn::Eq(right, all));
}

bool ascend(const uint8_t* indices, size_t k) {
  const hn::ScalableTag<uint32_t> d;
  const hn::CappedTag<uint32_t, 1> one;
  size_t done = 0;
  const bool whole = ascendPart(d, indices, done, k - 1);
  return ascendPart(one, indices, done, k - 1) && whole;
}

// `exponent`: the bits that all infinities and NaNs have, and they alone.
template <class D>
HWY_INLINE bool finitePart(D d, const uint8_t* values, size_t& done, size_t end,
                           hn::TFromD<D> exponent) {
  const auto all = hn::Set(d, exponent);
  auto wrong = hn::Zero(d);
  for (; done + hn::Lanes(d) <= end; done += hn::Lanes(d)) {
    const auto value = data::loadAnywhere(d, values + done * sizeof(exponent));
    wrong = hn::Or(wrong, hn::VecFromMask(d, hn::Eq(hn::And(value, all), all)));
  }
  return hn::AllTrue(d, hn::Eq(wrong, hn::Zero(d)));
}

template <typename Bits>
bool finite(const uint8_t* values, size_t k, Bits exponent) {
  const hn::ScalableTag<Bits> d;
  const hn::CappedTag<Bits, 1> one;
  size_t done = 0;
  const bool whole = finitePart(d, values, done, k, exponent);
  return finitePart(one, values, done, k, exponent) && whole;
}

Inspection inspectTarget(const Cursor& payload, PayloadLayout layout) {
  const bool allFinite = layout.values == TopkValues::kFloat32
                             ? finite<uint32_t>(payload.values, layout.k, 0x7f800000)
                             : finite<uint16_t>(payload.values, layout.k, 0x7c00);
  return {ascend(payload.indices, layout.k), allFinite};
}

// ---- Addition.

// The elements of [begin, begin + count) from one payload. The check keeps the sums in place even
// if the payload changed since it was inspected.
HWY_INLINE void addFloat32(Cursor& cursor, size_t k, size_t begin, size_t count, float* sums) {
  size_t j = cursor.next;
  for (; j < k; ++j) {
    const size_t place = at<uint32_t>(cursor.indices, j) - begin;
    if (place >= count) break;
    sums[place] += at<float>(cursor.values, j);
  }
  cursor.next = j;
}

HWY_INLINE void addFloat16(Cursor& cursor, size_t k, size_t begin, size_t count, float* sums) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  constexpr size_t kPart = 64;
  HWY_ALIGN float values[kPart];
  while (cursor.next < k) {
    const uint8_t* const halves = cursor.values + cursor.next * 2;
    const size_t part = std::min(kPart, k - cursor.next);
    size_t j = 0;
    for (; j + hn::Lanes(d) <= part; j += hn::Lanes(d)) {
      hn::StoreU(data::Float16::load(d, halves + j * 2), d, values + j);
    }
    for (; j < part; ++j) hn::StoreU(data::Float16::load(one, halves + j * 2), one, values + j);
    for (j = 0; j < part; ++j) {
      const size_t place = at<uint32_t>(cursor.indices, cursor.next + j) - begin;
      if (place >= count) break;
      sums[place] += values[j];
    }
    cursor.next += j;
    if (j < part) return;
  }
}

// ---- The way out: sums become elements, and zero again.

struct Undivided {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D /*d*/, hn::Vec<D> sum) const {
    return sum;
  }
};
struct Divided {
  float divisor;
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> sum) const {
    return hn::Div(sum, hn::Set(d, divisor));
  }
};
// The same bits as Divided, where the factor is a power of two.
struct Multiplied {
  float factor;
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> sum) const {
    return hn::Mul(sum, hn::Set(d, factor));
  }
};

template <class Storage>
struct Stored {
  using Base = Storage;
  template <class D>
  static HWY_INLINE void put(D d, hn::Vec<D> value, uint8_t* to) {
    Storage::store(d, value, to);
  }
};
struct Streamed {
  using Base = data::Native<float>;
  template <class D>
  static HWY_INLINE void put(D d, hn::Vec<D> value, uint8_t* to) {
    hn::Stream(value, d, reinterpret_cast<float*>(to));
  }
};

template <class Out, class Scaled>
HWY_INLINE void writeBlock(const Scaled& scaled, float* sums, size_t count, uint8_t* to) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  constexpr size_t kBytes = Out::Base::kBytes;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const auto sum = hn::Load(d, sums + i);
    hn::Store(hn::Zero(d), d, sums + i);
    Out::put(d, data::canonicalNan(d, scaled(d, sum)), to + i * kBytes);
  }
  for (; i < count; ++i) {
    const auto sum = hn::LoadU(one, sums + i);
    sums[i] = 0;
    Out::Base::store(one, data::canonicalNan(one, scaled(one, sum)), to + i * kBytes);
  }
}

template <class Out, class Scaled>
void run(const Scaled& scaled, Scatter& work) {
  alignas(64) float sums[kSumBlock] = {};
  auto* const to = static_cast<uint8_t*>(work.dense.data);
  const size_t count = work.dense.count;
  const size_t k = work.layout.k;
  constexpr size_t kBytes = Out::Base::kBytes;
  // The first block ends at a line of the result, if one can: then all others begin at one.
  const size_t toLine =
      (kCacheLineBytes - reinterpret_cast<uintptr_t>(to) % kCacheLineBytes) % kCacheLineBytes;
  size_t block = toLine == 0 ? kSumBlock : toLine / kBytes;
  for (size_t begin = 0; begin < count;) {
    block = std::min(block, count - begin);
    for (Cursor& cursor : work.cursors) {
      if (work.layout.values == TopkValues::kFloat32) {
        addFloat32(cursor, k, begin, block, sums);
      } else {
        addFloat16(cursor, k, begin, block, sums);
      }
    }
    if (begin == 0 && toLine != 0) {
      // Only what begins at a line may go past the caches: those stores need aligned vectors.
      writeBlock<Stored<typename Out::Base>>(scaled, sums, block, to);
    } else {
      writeBlock<Out>(scaled, sums, block, to + begin * kBytes);
    }
    begin += block;
    block = kSumBlock;
  }
}

template <class Out>
void runScaled(Scatter& work) {
  if (work.divisor == 1) return run<Out>(Undivided(), work);
  int exponent;
  if (std::frexp(work.divisor, &exponent) == 0.5f) {
    return run<Out>(Multiplied{1 / work.divisor}, work);
  }
  run<Out>(Divided{work.divisor}, work);
}

void scatterTarget(Scatter& work) {
  const Buffer& dense = work.dense;
  if (dense.dtype == DType::kFloat16) return runScaled<Stored<data::Float16>>(work);
  if (dense.dtype == DType::kBFloat16) return runScaled<Stored<data::BFloat16>>(work);
  const bool aligned = reinterpret_cast<uintptr_t>(dense.data) % sizeof(float) == 0;
  if (!aligned || dense.bytes() < kStreamBytes) {
    return runScaled<Stored<data::Native<float>>>(work);
  }
  runScaled<Streamed>(work);
  hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace taco::topk_internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace taco::topk_internal {

HWY_EXPORT(inspectTarget);
HWY_EXPORT(scatterTarget);

Inspection inspect(const Cursor& payload, PayloadLayout layout) {
  return HWY_DYNAMIC_DISPATCH(inspectTarget)(payload, layout);
}
void scatter(Scatter& work) { HWY_DYNAMIC_DISPATCH(scatterTarget)(work); }

}  // namespace taco::topk_internal
#endif
