// CUDA on the CPU, as far as the kernels of cuda/ use it: a source that includes this first
// compiles with the host's compiler and runs, so that kernels are tested on machines without a GPU.
//
// - A launch runs the blocks of its grid on a few OS threads, so blocks really run at the same
//   time, and one that waits for another makes progress. Blocks and threads start in an order drawn
//   from a seed: what works only in one order is found out.
// - The threads of a block are fibers of one OS thread. They switch at barriers, warp functions and
//   __nanosleep, in between they run alone; so races inside a block are not found, missing barriers
//   often are, by the order of the threads.
// - What the hardware leaves undefined is an error with a sentence: a barrier that part of a block
//   does not reach, or reaches in another line; a warp function that lanes of its mask do not call,
//   or call with another mask; a shuffle from a lane outside the mask; a wait that never ends.
//
// Not here: grids and blocks of more than one dimension, dynamic shared memory, streams (a launch
// is over when it returns), warps smaller than 32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <stdexcept>
#include <type_traits>

#define TACO_SIMT 1

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
// A block keeps to one OS thread, and an OS thread to one block at a time. As on the GPU, what the
// last block left is still there.
#define __shared__ static thread_local
#define TACO_UNROLL

// The kernel's arguments are copied when it is launched. Evaluates to 0, cudaSuccess.
#define TACO_LAUNCH(kernel, blocks, threads, stream, ...) \
  (static_cast<void>(stream),                             \
   ::taco::simt::launch((blocks), (threads), [=] { (kernel)(__VA_ARGS__); }), 0)

#define threadIdx (::taco::simt::place.thread)
#define blockIdx (::taco::simt::place.block)
#define blockDim (::taco::simt::place.blockSize)
#define gridDim (::taco::simt::place.gridSize)

namespace taco::simt {

using Where = std::source_location;

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Options {
  int workers = 3;           // OS threads, the caller's included
  uint32_t seed = 0;         // of the order of blocks and threads; 0: ascending
  double waitSeconds = 100;  // of CPU time; a launch in which somebody sleeps after that has failed
};
Options& options();

// Runs a grid and returns when all of it is done; throws Error when it cannot be. Not from inside a
// kernel, and one at a time.
void launch(unsigned blocks, unsigned threads, const std::function<void()>& kernel);

struct Index {
  unsigned x = 0;
};
struct Place {
  Index thread, block, blockSize, gridSize;
};
inline thread_local Place place;

enum class WarpFunction { kShuffle, kBallot, kMatch, kSync };

// Waits until all lanes of `mask` have called the same function; returns this lane's result. `lane`
// is the source of a shuffle.
uint64_t meetWarp(WarpFunction function, uint32_t mask, uint64_t value, int lane, Where where);
void meetBlock(Where where);
void sleep();

template <typename T>
T shuffle(uint32_t mask, T value, int lane, Where where) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = meetWarp(WarpFunction::kShuffle, mask, bits, lane, where);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline int lane() { return static_cast<int>(place.thread.x % 32); }

}  // namespace taco::simt

inline void __syncthreads(taco::simt::Where where = taco::simt::Where::current()) {
  taco::simt::meetBlock(where);
}
inline void __syncwarp(uint32_t mask = 0xffffffff,
                       taco::simt::Where where = taco::simt::Where::current()) {
  taco::simt::meetWarp(taco::simt::WarpFunction::kSync, mask, 0, 0, where);
}
template <typename T>
T __shfl_sync(uint32_t mask, T value, int lane,
              taco::simt::Where where = taco::simt::Where::current()) {
  return taco::simt::shuffle(mask, value, lane & 31, where);
}
// Beyond the ends of the warp a lane gets its own value.
template <typename T>
T __shfl_up_sync(uint32_t mask, T value, unsigned distance,
                 taco::simt::Where where = taco::simt::Where::current()) {
  const int lane = taco::simt::lane(), source = lane - static_cast<int>(distance);
  return taco::simt::shuffle(mask, value, source < 0 ? lane : source, where);
}
template <typename T>
T __shfl_down_sync(uint32_t mask, T value, unsigned distance,
                   taco::simt::Where where = taco::simt::Where::current()) {
  const int lane = taco::simt::lane(), source = lane + static_cast<int>(distance);
  return taco::simt::shuffle(mask, value, source > 31 ? lane : source, where);
}
template <typename T>
T __shfl_xor_sync(uint32_t mask, T value, int lanes,
                  taco::simt::Where where = taco::simt::Where::current()) {
  return taco::simt::shuffle(mask, value, (taco::simt::lane() ^ lanes) & 31, where);
}
inline uint32_t __ballot_sync(uint32_t mask, bool is,
                              taco::simt::Where where = taco::simt::Where::current()) {
  return static_cast<uint32_t>(
      taco::simt::meetWarp(taco::simt::WarpFunction::kBallot, mask, is ? 1 : 0, 0, where));
}
inline bool __any_sync(uint32_t mask, bool is,
                       taco::simt::Where where = taco::simt::Where::current()) {
  return __ballot_sync(mask, is, where) != 0;
}
inline bool __all_sync(uint32_t mask, bool is,
                       taco::simt::Where where = taco::simt::Where::current()) {
  return __ballot_sync(mask, is, where) == mask;
}
template <typename T>
uint32_t __match_any_sync(uint32_t mask, T value,
                          taco::simt::Where where = taco::simt::Where::current()) {
  static_assert(sizeof(T) <= 8 && std::is_integral_v<T>);
  return static_cast<uint32_t>(taco::simt::meetWarp(taco::simt::WarpFunction::kMatch, mask,
                                                    static_cast<uint64_t>(value), 0, where));
}

inline void __nanosleep(unsigned) { taco::simt::sleep(); }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

inline int __popc(uint32_t bits) { return __builtin_popcount(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz(static_cast<uint32_t>(bits)); }
inline uint32_t __float_as_uint(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float __uint_as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Atomics, on shared and on device memory: 32 and 64 bits.
template <typename T>
T atomicAdd(T* word, T value) {
  return __atomic_fetch_add(word, value, __ATOMIC_SEQ_CST);
}
template <typename T>
T atomicOr(T* word, T value) {
  return __atomic_fetch_or(word, value, __ATOMIC_SEQ_CST);
}
template <typename T>
T atomicExch(T* word, T value) {
  return __atomic_exchange_n(word, value, __ATOMIC_SEQ_CST);
}
template <typename T>
T atomicCAS(T* word, T expected, T value) {
  __atomic_compare_exchange_n(word, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}
template <typename T>
T atomicMax(T* word, T value) {
  T old = __atomic_load_n(word, __ATOMIC_SEQ_CST);
  while (old < value && !__atomic_compare_exchange_n(word, &old, value, false, __ATOMIC_SEQ_CST,
                                                     __ATOMIC_SEQ_CST)) {
  }
  return old;
}

namespace taco::cuda {

// See cuda/launch.h.
template <typename T>
T loadVolatile(const T* word) {
  return __atomic_load_n(word, __ATOMIC_RELAXED);
}
template <typename T>
void storeVolatile(T* word, T value) {
  __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

}  // namespace taco::cuda
