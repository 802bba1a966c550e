// The loop that all vectorised reductions share, compiled once a Highway target.
//
// A Storage says how elements lie in memory and in which lanes they are computed with; an Op says
// what is done to them (before, between two, after). Four vectors at a time: for each, the sources
// are combined in registers in their order, and the result is stored to every destination before
// the next four are read. So each byte is read once and written once, however many sources there
// are, and a destination may be one of the sources.
//
// The ragged parts, before the first vector boundary of the first destination and after the last,
// run through ever shorter vectors with the same instructions, so that an element's result does not
// depend on where in the buffer it lies.

// The toggling include guard of Highway: once for every target.
#if defined(TACO_CSRC_DATA_REDUCE_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TACO_CSRC_DATA_REDUCE_LOOP_INL_H_
#undef TACO_CSRC_DATA_REDUCE_LOOP_INL_H_
#else
#define TACO_CSRC_DATA_REDUCE_LOOP_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "csrc/data/prefetch.h"
#include "csrc/data/reduce_kernels.h"
#include "csrc/data/reduce_ops-inl.h"
#include "csrc/data/storage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace taco::data_internal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// ---- The loop. kSrcs: how many sources, where the compiler knows; 0 where it does not.

template <class Storage, class Op, int kSrcs>
struct Loop {
  using Lane = typename Storage::Lane;
  static constexpr size_t kBytes = Storage::kBytes;

  const Op& op;
  const Operands& operands;

  HWY_INLINE int numSrcs() const { return kSrcs != 0 ? kSrcs : operands.numSrcs; }
  HWY_INLINE const uint8_t* src(int s) const {
    return static_cast<const uint8_t*>(operands.srcs[s]);
  }
  HWY_INLINE uint8_t* dst(int t) const { return static_cast<uint8_t*>(operands.dsts[t]); }

  template <class D>
  HWY_INLINE auto loaded(D d, const uint8_t* from) const {
    return op.before(d, Storage::load(d, from));
  }

  // Lanes(d) elements from byte `at`.
  template <class D>
  HWY_INLINE void oneVector(D d, size_t at) const {
    auto acc = loaded(d, src(0) + at);
    for (int s = 1; s < numSrcs(); ++s) acc = op.combine(d, acc, loaded(d, src(s) + at));
    acc = op.after(d, acc);
    for (int t = 0; t < operands.numDsts; ++t) Storage::store(d, acc, dst(t) + at);
  }

  template <class D>
  HWY_INLINE void fourVectors(D d, size_t at) const {
    const size_t pitch = hn::Lanes(d) * kBytes;
    const uint8_t* first = src(0) + at;
    auto acc0 = loaded(d, first);
    auto acc1 = loaded(d, first + pitch);
    auto acc2 = loaded(d, first + 2 * pitch);
    auto acc3 = loaded(d, first + 3 * pitch);
    for (int s = 1; s < numSrcs(); ++s) {
      const uint8_t* next = src(s) + at;
      acc0 = op.combine(d, acc0, loaded(d, next));
      acc1 = op.combine(d, acc1, loaded(d, next + pitch));
      acc2 = op.combine(d, acc2, loaded(d, next + 2 * pitch));
      acc3 = op.combine(d, acc3, loaded(d, next + 3 * pitch));
    }
    acc0 = op.after(d, acc0);
    acc1 = op.after(d, acc1);
    acc2 = op.after(d, acc2);
    acc3 = op.after(d, acc3);
    for (int t = 0; t < operands.numDsts; ++t) {
      uint8_t* to = dst(t) + at;
      Storage::store(d, acc0, to);
      Storage::store(d, acc1, to + pitch);
      Storage::store(d, acc2, to + 2 * pitch);
      Storage::store(d, acc3, to + 3 * pitch);
    }
  }

  // Elements from `done` up to `end` in vectors of at most kLanes, then of half as many, ...
  template <size_t kLanes>
  HWY_INLINE void ragged(size_t done, size_t end) const {
    const hn::CappedTag<Lane, kLanes> d;
    const size_t lanes = hn::Lanes(d);
    for (; done + lanes <= end; done += lanes) oneVector(d, done * kBytes);
    if constexpr (kLanes > 1) ragged<kLanes / 2>(done, end);
  }
  // The same code whatever kSrcs is.
  HWY_NOINLINE static void raggedPart(const Op& op, const Operands& operands, size_t done,
                                      size_t end) {
    Loop<Storage, Op, 0>{op, operands}.template ragged<HWY_MAX_BYTES / sizeof(Lane)>(done, end);
  }

  // How many elements lie before the first vector boundary of the first destination.
  HWY_INLINE size_t headCount(size_t vectorBytes) const {
    const auto address = reinterpret_cast<uintptr_t>(dst(0));
    return (vectorBytes - address % vectorBytes) % vectorBytes / kBytes;
  }

  HWY_INLINE void own(size_t from, size_t to) const {
    for (int t = 0; t < operands.numDsts; ++t) {
      for (size_t at = from; at < to; at += kCacheLineBytes) prefetchForWrite(dst(t) + at);
    }
  }

  HWY_INLINE void run() const {
    const hn::ScalableTag<Lane> d;
    const size_t step = 4 * hn::Lanes(d);
    const size_t stepBytes = step * kBytes;
    const size_t bytes = operands.count * kBytes;
    size_t done = 0;
    if (operands.count >= 2 * step) {
      // Never past the end: the next lines may be the ones a peer is working on.
      own(0, HWY_MIN(kOwnFirstBytes, bytes));
      done = headCount(hn::Lanes(d) * kBytes);
      if (done != 0) raggedPart(op, operands, 0, done);
      for (; done + step <= operands.count; done += step) {
        const size_t at = done * kBytes;
        const size_t ahead = at + kOwnAheadBytes;
        if (ahead + stepBytes <= bytes) own(ahead, ahead + stepBytes);
        fourVectors(d, at);
      }
    }
    if (done < operands.count) raggedPart(op, operands, done, operands.count);
  }
};

template <class Storage, class Op>
HWY_NOINLINE void runAnySrcs(const Op& op, const Operands& operands) {
  Loop<Storage, Op, 0>{op, operands}.run();
}

// For the operations that matter most: loops of their own for 2, 3 and 4 sources.
template <class Storage, class Op>
HWY_NOINLINE void runFewSrcs(const Op& op, const Operands& operands) {
  switch (operands.numSrcs) {
    case 2:
      return Loop<Storage, Op, 2>{op, operands}.run();
    case 3:
      return Loop<Storage, Op, 3>{op, operands}.run();
    case 4:
      return Loop<Storage, Op, 4>{op, operands}.run();
  }
  Loop<Storage, Op, 0>{op, operands}.run();
}

// Every kernel there is for floating point numbers, computed with as `Lane`; `Runner::few` and
// `Runner::any` start the loop.
template <typename Lane, class Runner>
HWY_INLINE void runFloatKernel(Kernel kernel, const Operands& operands) {
  switch (kernel) {
    case Kernel::kSum:
      return Runner::few(FloatSum(), operands);
    case Kernel::kSumDivide:
      return Runner::few(FloatSumDivide<Lane>(operands.divisor), operands);
    case Kernel::kScaledSum:
      return Runner::any(FloatScaledSum<Lane>(operands.scaleReal), operands);
    case Kernel::kProduct:
      return Runner::any(FloatProduct(), operands);
    case Kernel::kMin:
      return Runner::any(FloatMin(), operands);
    case Kernel::kMax:
      return Runner::any(FloatMax(), operands);
    case Kernel::kAnd:
    case Kernel::kOr:
    case Kernel::kXor:
      return;  // refused before: whyUnsupported
  }
}

// The usual Runner.
template <class Storage>
struct RunStorage {
  template <class Op>
  static HWY_INLINE void few(const Op& op, const Operands& operands) {
    runFewSrcs<Storage>(op, operands);
  }
  template <class Op>
  static HWY_INLINE void any(const Op& op, const Operands& operands) {
    runAnySrcs<Storage>(op, operands);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace taco::data_internal
HWY_AFTER_NAMESPACE();

#endif  // the toggling guard
