// Chooses what a TopK all-reduce sends, with error feedback: what is not sent is not lost, but kept
// in a residual and sent later.
//
// key of a float32: its bits without the sign, as an integer. Keys order magnitudes, infinity above
//   every finite number and NaN above infinity; denormals are numbers like any other.
//
// In the usual case the gradient and the residual are read once and the residual written once:
//   1. One pass adds the gradient to the residual and compacts, in index order, the candidates: the
//      elements whose key is at least a guess, somewhat below the k-th key of the last call. How
//      much below follows what was seen: as far as some 1.75 k elements reach, but no less than the
//      k-th key moves from call to call. (Error feedback lets much pile up just below the k-th key;
//      0.9 of it would soon make a tenth of all elements candidates.)
//   2. The k-th key is found among the candidates, a few percent of the elements.
//   3. The k chosen ones are written to the payload and taken out of the residual.
// Fewer than k candidates, or more than there is room for: the guess is made again, from some
// 16,000 samples of the residual, which is read once more; and if that one is bad too, by a radix
// histogram of all keys. So the guess decides how fast it goes, and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "csrc/data/buffer.h"
#include "csrc/topk/payload.h"

namespace taco {

// One buffer's: keeps the last call's k-th key, and scratch memory. Not thread-safe.
class Selector {
 public:
  Selector();
  ~Selector();
  Selector(Selector&&) noexcept;
  Selector& operator=(Selector&&) noexcept;

  // residual[i] += gradient[i], in float32. The layout.k elements of largest key then go into
  // `payload`, in index order; of equal keys the one with the smallest index is chosen first. The
  // residual becomes 0 where something is sent; with float16 values, what the rounding lost.
  //
  // - gradient: float32, float16 or bfloat16; at most 2^32 - 1 elements; any alignment.
  // - Bits do not depend on vector width, alignment, history or the thread's floating-point mode
  //   (denormals count even where torch.set_flush_denormal was called). A sum that is NaN is the
  //   positive quiet NaN, as in csrc/data/reduce.h; so all NaNs are equally large.
  // - float16 values: rounded to nearest even. Finite ones saturate at 65504 and the remainder
  //   stays in the residual, so that value + residual is the sum again, bit for bit. (From 2^29 to
  //   2^30 a float32 is a multiple of 64 and 65504 is not: there they saturate at 65472.)
  // - NaN and infinity are sent as such, and leave 0 in the residual.
  //
  // Returns whether all chosen values are finite. If they are, so is everything that stays.
  bool select(ConstBuffer gradient, float* residual, PayloadLayout layout, void* payload);

  // What an element must reach to be a candidate of the next call; for benchmarks and tests.
  float guess() const;

 private:
  struct Scratch;
  std::unique_ptr<Scratch> scratch_;  // made at the first call
};

}  // namespace taco
