#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "csrc/data/dtype.h"
#include "csrc/data/reduce_op.h"

namespace taco {

enum class OpKind : uint8_t {
  kBroadcast,
  kAllReduce,
  kReduce,
  kAllGather,
  kGather,
  kScatter,
  kReduceScatter,
  kAllToAll,
  kBarrier,
  kSharedEmpty,
  kTopkAllReduce,
};

const char* name(OpKind op);

// What one rank is doing: the fingerprint that travels with every collective, so that ranks that
// call different things tell each other instead of mixing bytes. Two ranks match when all fields
// are equal; `describe` is what the error message shows. Trivially copyable: it is sent as it is.
struct Call {
  uint64_t sequence = 0;  // of this group's collectives, counted from 1
  uint64_t count = 0;     // elements; of the part that every rank must agree on
  // Hash of whatever else must be equal (per-rank counts); of kTopkAllReduce: topkDetail().
  uint64_t detail = 0;
  int32_t root = -1;      // -1 where the operation has none
  OpKind op = OpKind::kBarrier;
  DType dtype = DType::kInt8;
  ReduceOp reduceOp = ReduceOp::kSum;
  uint8_t hasReduceOp = 0;

  bool operator==(const Call& other) const;
  bool operator!=(const Call& other) const { return !(*this == other); }

  // 64-bit hash of all fields, never 0.
  uint64_t fingerprint() const;

  // "all_reduce(SUM) of 1024 float32, operation 7 of this group"
  std::string describe() const;
};
static_assert(std::is_trivially_copyable_v<Call> && sizeof(Call) == 32);

// What part of its elements a TopK all-reduce sends, as what, and whether momentum is corrected: equal
// ratios choose equally many of every slice.
constexpr uint64_t topkDetail(double ratio, bool halfValues, bool momentum) {
  return (std::bit_cast<uint64_t>(ratio) & ~uint64_t{3}) | (halfValues ? 1 : 0) | (momentum ? 2 : 0);
}
// A dense step between them is an all_reduce with this detail where momentum is corrected.
inline constexpr uint64_t kWithMomentum = 1;

// Mixes `value` into a running hash (for Call::detail).
uint64_t mixHash(uint64_t hash, uint64_t value);

}  // namespace taco
