// A tile: the 4096 elements that a block of 256 threads works on at a time, each thread on 16.
//
// A warp has 512 consecutive elements, in four rows of 128; in each row a lane has four neighbours:
//
//   warp 0, row 0:  lane 0: 0 1 2 3 | lane 1: 4 5 6 7 | ... | lane 31: 124 .. 127
//           row 1:  lane 0: 128 129 130 131 | ...
//
// so a row is one access of 16 bytes a lane, neighbouring lanes touch neighbouring memory, and all
// loads of a thread are under way before the first is used. Item i of a thread is element i % 4 of
// its part of row i / 4. Which of its items are wanted is a mask of 16 bits; Places says where in
// the order of the indices each comes.
#pragma once

#include <cstdint>

#include "cuda/launch.h"
#include "cuda/number.cuh"
#include "cuda/warp.cuh"

namespace taco::cuda {

inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / kWarpSize;
inline constexpr int kRows = 4;
inline constexpr int kNeighbours = 4;
inline constexpr int kItems = kRows * kNeighbours;
inline constexpr uint32_t kRow = kWarpSize * kNeighbours;
inline constexpr uint32_t kTile = kThreads * kItems;

template <typename T>
struct alignas(sizeof(T) * kNeighbours) Four {
  T at[kNeighbours];
};

// Where in the tile this thread's part of a row begins.
__device__ __forceinline__ uint32_t rowStart(int row) {
  return static_cast<uint32_t>(warpIndex()) * (kRow * kRows) + static_cast<uint32_t>(row) * kRow +
         static_cast<uint32_t>(laneIndex()) * kNeighbours;
}

// Where in the tile item i lies.
__device__ __forceinline__ uint32_t placeInTile(int item) {
  return rowStart(item / kNeighbours) + static_cast<uint32_t>(item % kNeighbours);
}

// Whether all of the tile exists and may be accessed four elements at a time.
__device__ __forceinline__ bool isWhole(uint32_t first, uint32_t count, bool aligned) {
  return aligned && first + kTile <= count;
}

// The items below `count` of the tile that begins at element `first`; 0 in place of others.
template <typename T>
__device__ __forceinline__ void loadTile(const T* from, uint32_t first, uint32_t count,
                                         bool aligned, Four<T> (&items)[kRows]) {
  if (isWhole(first, count, aligned)) {
    TACO_UNROLL
    for (int row = 0; row < kRows; ++row) {
      items[row] = *reinterpret_cast<const Four<T>*>(from + first + rowStart(row));
    }
    return;
  }
  TACO_UNROLL
  for (int i = 0; i < kItems; ++i) {
    const uint32_t at = first + placeInTile(i);
    items[i / kNeighbours].at[i % kNeighbours] = at < count ? from[at] : T{};
  }
}

template <typename T>
__device__ __forceinline__ void storeTile(T* to, uint32_t first, uint32_t count, bool aligned,
                                          const Four<T> (&items)[kRows]) {
  if (isWhole(first, count, aligned)) {
    TACO_UNROLL
    for (int row = 0; row < kRows; ++row) {
      *reinterpret_cast<Four<T>*>(to + first + rowStart(row)) = items[row];
    }
    return;
  }
  TACO_UNROLL
  for (int i = 0; i < kItems; ++i) {
    const uint32_t at = first + placeInTile(i);
    if (at < count) to[at] = items[i / kNeighbours].at[i % kNeighbours];
  }
}

// The mask of items that fulfil `wanted(bits)`, of those below `count`.
template <typename Wanted>
__device__ __forceinline__ uint32_t itemMask(const Four<uint32_t> (&items)[kRows], uint32_t first,
                                             uint32_t count, const Wanted& wanted) {
  uint32_t mask = 0;
  TACO_UNROLL
  for (int i = 0; i < kItems; ++i) {
    const bool isOne =
        first + placeInTile(i) < count && wanted(items[i / kNeighbours].at[i % kNeighbours]);
    mask |= static_cast<uint32_t>(isOne) << i;
  }
  return mask;
}

// How many wanted items of its warp come before each of this thread's. The four rows are summed up
// at once, a byte each: a row has 128 elements.
class Places {
 public:
  // All lanes of the warp.
  __device__ explicit Places(uint32_t mask) {
    uint32_t own = 0;
    TACO_UNROLL
    for (int row = 0; row < kRows; ++row) {
      own |= static_cast<uint32_t>(__popc(mask >> row * kNeighbours & 0xf)) << row * 8;
    }
    const uint32_t inclusive = warpInclusiveSum(own);
    rows_ = __shfl_sync(kAllLanes, inclusive, kWarpSize - 1);
    before_ = inclusive - own;
  }

  // Before this thread's part of the row.
  __device__ uint32_t before(int row) const {
    uint32_t sum = before_ >> row * 8 & 0xff;
    TACO_UNROLL
    for (int above = 0; above < kRows; ++above) {
      if (above < row) sum += rows_ >> above * 8 & 0xff;
    }
    return sum;
  }
  // In the whole warp.
  __device__ uint32_t total() const {
    return (rows_ & 0xff) + (rows_ >> 8 & 0xff) + (rows_ >> 16 & 0xff) + (rows_ >> 24);
  }

 private:
  uint32_t before_;
  uint32_t rows_;
};

}  // namespace taco::cuda
