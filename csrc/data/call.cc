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
  uint64_t hash = mixHash(sequence, count);
  hash = mixHash(hash, detail);
  hash = mixHash(hash, static_cast<uint32_t>(root));
  const uint64_t kinds = static_cast<uint64_t>(op) | static_cast<uint64_t>(dtype) << 8 |
                         (hasReduceOp ? static_cast<uint64_t>(reduceOp) << 16 | 1ull << 24 : 0);
  hash = mixHash(hash, kinds);
  return hash == 0 ? 1 : hash;
}

std::string Call::describe() const {
  std::string text = name(op);
  if (hasReduceOp) text += str("(", name(reduceOp), ")");
  switch (op) {
    case OpKind::kBarrier: break;
    case OpKind::kGather:
    case OpKind::kScatter:
    case OpKind::kAllToAll: text += str(" of ", name(dtype)); break;  // counts may differ
    case OpKind::kBroadcast:
    case OpKind::kAllReduce:
    case OpKind::kReduce:
    case OpKind::kAllGather:
    case OpKind::kReduceScatter: text += str(" of ", count, " ", name(dtype)); break;
  }
  if (root >= 0) text += str(" with root ", root);
  return text + str(", operation ", sequence, " of this group");
}

}  // namespace taco
