#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "perf/native/options.h"

namespace taco::perf {

// The values of one operation: what each rank puts in, and what must come out, bit for bit. They
// are small integers, so that sums are exact in every type, and they change with the repeat, so
// that a result left over from before is wrong.
class Problem {
 public:
  // `countEach`: elements of the whole buffer of an all-reduce or a broadcast, else of one rank's
  // block.
  Problem(Operation operation, ElementType type, size_t countEach, int rank, int size);

  size_t inBytes() const;
  size_t outBytes() const;    // 0: the operation works in place
  size_t totalBytes() const;  // as nccl-tests counts: the larger of the two

  void fill(char* in, int repeat) const;
  // Elements that are not as they should be. `result`: where the operation leaves it.
  size_t wrong(const char* result, int repeat) const;

 private:
  using Table = std::array<uint32_t, 16>;
  Table table(const int* ranks, int numRanks, int repeat) const;
  Table input(int rank, int repeat) const { return table(&rank, 1, repeat); }
  Table sum(int repeat) const;

  const Operation operation_;
  const ElementType type_;
  const size_t countEach_;
  const int rank_;
  const int size_;
};

}  // namespace taco::perf
