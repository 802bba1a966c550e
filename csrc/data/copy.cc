// 64 bytes at a time, from the first line boundary of the destination on; the ragged ends are
// copied as 64 bytes that overlap what the loop copies. Less than 64 bytes: two overlapping pieces
// of the largest power of two that fits.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "csrc/data/copy.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "csrc/data/copy.h"
#include "csrc/data/prefetch.h"

HWY_BEFORE_NAMESPACE();
namespace taco::data_internal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// All loads first: the compiler then needs no proof that `to` and `from` are apart.
HWY_INLINE void copyLine(uint8_t* to, const uint8_t* from) {
  const hn::CappedTag<uint8_t, kCacheLineBytes> d;
  const size_t lanes = hn::Lanes(d);
  if (lanes == 64) {
    hn::StoreU(hn::LoadU(d, from), d, to);
  } else if (lanes == 32) {
    const auto v0 = hn::LoadU(d, from);
    const auto v1 = hn::LoadU(d, from + 32);
    hn::StoreU(v0, d, to);
    hn::StoreU(v1, d, to + 32);
  } else if (lanes == 16) {
    const auto v0 = hn::LoadU(d, from);
    const auto v1 = hn::LoadU(d, from + 16);
    const auto v2 = hn::LoadU(d, from + 32);
    const auto v3 = hn::LoadU(d, from + 48);
    hn::StoreU(v0, d, to);
    hn::StoreU(v1, d, to + 16);
    hn::StoreU(v2, d, to + 32);
    hn::StoreU(v3, d, to + 48);
  } else {
    std::memcpy(to, from, kCacheLineBytes);
  }
}

template <size_t kPiece>
HWY_INLINE void copyEnds(uint8_t* to, const uint8_t* from, size_t bytes) {
  uint8_t head[kPiece];
  uint8_t tail[kPiece];
  std::memcpy(head, from, kPiece);
  std::memcpy(tail, from + bytes - kPiece, kPiece);
  std::memcpy(to, head, kPiece);
  std::memcpy(to + bytes - kPiece, tail, kPiece);
}

HWY_INLINE void copyShort(uint8_t* to, const uint8_t* from, size_t bytes) {
  if (bytes >= 32) return copyEnds<32>(to, from, bytes);
  if (bytes >= 16) return copyEnds<16>(to, from, bytes);
  if (bytes >= 8) return copyEnds<8>(to, from, bytes);
  if (bytes >= 4) return copyEnds<4>(to, from, bytes);
  if (bytes >= 2) return copyEnds<2>(to, from, bytes);
  if (bytes == 1) *to = *from;
}

// `kOwnSource`: also ask to own the source's lines, for whoever writes them next.
template <bool kOwnSource>
HWY_INLINE void copyLoop(uint8_t* to, const uint8_t* from, size_t bytes) {
  if (bytes < kCacheLineBytes) return copyShort(to, from, bytes);

  const auto own = [&](size_t at) { prefetchForWrite((kOwnSource ? from : to) + at); };
  for (size_t at = 0; at < kOwnFirstBytes && at < bytes; at += kCacheLineBytes) own(at);

  copyLine(to, from);
  size_t at = kCacheLineBytes - reinterpret_cast<uintptr_t>(to) % kCacheLineBytes;
  // Never past the end: the next lines may be the ones a peer is working on.
  constexpr size_t kStep = 4 * kCacheLineBytes;
  for (; at + kOwnAheadBytes + kStep <= bytes; at += kStep) {
    for (size_t line = 0; line < kStep; line += kCacheLineBytes) {
      own(at + kOwnAheadBytes + line);
      copyLine(to + at + line, from + at + line);
    }
  }
  for (; at + kCacheLineBytes <= bytes; at += kCacheLineBytes) {
    if (at + kOwnAheadBytes < bytes) own(at + kOwnAheadBytes);
    copyLine(to + at, from + at);
  }
  if (at < bytes) copyLine(to + bytes - kCacheLineBytes, from + bytes - kCacheLineBytes);
}

void copyOwningDst(uint8_t* to, const uint8_t* from, size_t bytes) {
  copyLoop<false>(to, from, bytes);
}

void copyOwningSrc(uint8_t* to, const uint8_t* from, size_t bytes) {
  copyLoop<true>(to, from, bytes);
}

}  // namespace HWY_NAMESPACE
}  // namespace taco::data_internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace taco {
namespace data_internal {

HWY_EXPORT(copyOwningDst);
HWY_EXPORT(copyOwningSrc);

}  // namespace data_internal

void copyBytes(void* dst, const void* src, size_t bytes) {
  if (dst == src) return;
  using namespace data_internal;  // for the table behind HWY_DYNAMIC_DISPATCH
  HWY_DYNAMIC_DISPATCH(copyOwningDst)
  (static_cast<uint8_t*>(dst), static_cast<const uint8_t*>(src), bytes);
}

void gatherBytes(void* dst, const void* src, size_t bytes) {
  if (dst == src) return;
  using namespace data_internal;
  HWY_DYNAMIC_DISPATCH(copyOwningSrc)
  (static_cast<uint8_t*>(dst), static_cast<const uint8_t*>(src), bytes);
}

}  // namespace taco
#endif
