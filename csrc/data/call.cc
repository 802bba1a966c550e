#include "csrc/data/call.h"

#include "csrc/base/format.h"

namespace taco {

const char* name(OpKind op) {
  switch (op) {
    case OpKind::kBroadcast: return "broadcast";
    case OpKind::kAllReduce: return "all_reduce";
    case OpKind::kReduce: return "reduce";
    case OpKind::kAllGather: return "all_gather";
    case OpKind::kGather: return "gather";
    case OpKind::kScatter: return "scatter";
    case OpKind::kReduceScatter: return "reduce_scatter";
    case OpKind::kAllToAll: return "all_to_all";
    case OpKind::kBarrier: return "barrier";
    case OpKind::kSharedEmpty: return "shared_empty";
    case OpKind::kTopkAllReduce: return "topk_all_reduce";
  }
  return "unknown operation";
}

bool Call::operator==(const Call& other) const {
  return sequence == other.sequence && count == other.count && detail == other.detail &&
         root == other.root && op == other.op && dtype == other.dtype &&
         hasReduceOp == other.hasReduceOp && (!hasReduceOp || reduceOp == other.reduceOp);
}

uint64_t mixHash(uint64_t hash, uint64_t value) {
  // splitmix64's finaliser (Steele et al., OOPSLA 2014): every input bit reaches every output bit.
  uint64_t x = hash + 0x9e3779b97f4a7c15ull + value;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

uint64_t Call::fingerprint() const {
  const uint64_t kinds = static_cast<uint64_t>(op) | static_cast<uint64_t>(dtype) << 8 |
                         (hasReduceOp ? static_cast<uint64_t>(reduceOp) << 16 | 1ull << 24 : 0) |
                         static_cast<uint64_t>(static_cast<uint32_t>(root)) << 32;
  // Two rounds for four words, since it is part of every operation: the first two are multiplied by
  // odd numbers, so that no difference in one hides one in the other by accident.
  const uint64_t hash = mixHash(sequence * 0xff51afd7ed558ccdull ^ kinds * 0xc4ceb9fe1a85ec53ull,
                                count * 0x9fb21c651e98df25ull ^ mixHash(detail, 0));
  return hash == 0 ? 1 : hash;
}

std::string Call::describe() const {
  // Also of a call that came from a peer and may be anything.
  const std::string elements = static_cast<int>(dtype) < kNumDTypes
                                   ? std::string(name(dtype))
                                   : str("unknown dtype ", static_cast<int>(dtype));
  std::string text = name(op);
  if (hasReduceOp) {
    text += static_cast<int>(reduceOp) < kNumReduceOps
                ? str("(", name(reduceOp), ")")
                : str("(unknown reduction ", static_cast<int>(reduceOp), ")");
  }
  switch (op) {
    case OpKind::kBarrier: break;
    case OpKind::kGather:
    case OpKind::kScatter:
    case OpKind::kAllToAll: text += str(" of ", elements); break;  // counts may differ
    case OpKind::kBroadcast:
    case OpKind::kAllReduce:
    case OpKind::kReduce:
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
    case OpKind::kSharedEmpty: text += str(" of ", count, " ", elements); break;
    case OpKind::kTopkAllReduce:
      text += str(" of the largest ", std::bit_cast<double>(detail & ~uint64_t{3}) * 100, " % of ",
                  count, " ", elements, (detail & 1) != 0 ? " as float16" : "",
                  (detail & 2) != 0 ? ", with momentum" : "");
      break;
  }
  if (op == OpKind::kAllReduce && detail == kWithMomentum) text += ", with momentum";
  if (root >= 0) text += str(" with root ", root);
  return text + str(", operation ", sequence, " of this group");
}

}  // namespace taco
