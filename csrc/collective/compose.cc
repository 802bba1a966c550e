#include "csrc/collective/compose.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace taco {
namespace {

std::vector<ConstBuffer> nothingToSend(const Link& link, DType dtype) {
  return std::vector<ConstBuffer>(static_cast<size_t>(link.size()), ConstBuffer(nullptr, 0, dtype));
}

std::vector<Buffer> nothingToReceive(const Link& link, DType dtype) {
  return std::vector<Buffer>(static_cast<size_t>(link.size()), Buffer{nullptr, 0, dtype});
}

}  // namespace

void gather(Link& link, const OpContext& op, ConstBuffer in, std::span<const Buffer> outs,
            int root) {
  std::vector<ConstBuffer> sends = nothingToSend(link, in.dtype);
  sends[static_cast<size_t>(root)] = in;
  const std::vector<Buffer> nothing = nothingToReceive(link, in.dtype);
  link.exchange(op, sends, link.rank() == root ? outs : std::span<const Buffer>(nothing));
}

void scatter(Link& link, const OpContext& op, std::span<const ConstBuffer> ins, Buffer out,
             int root) {
  std::vector<Buffer> receives = nothingToReceive(link, out.dtype);
  receives[static_cast<size_t>(root)] = out;
  const std::vector<ConstBuffer> nothing = nothingToSend(link, out.dtype);
  link.exchange(op, link.rank() == root ? ins : std::span<const ConstBuffer>(nothing), receives);
}

void reduceToRoot(Link& link, const OpContext& op, ConstBuffer in, Buffer out,
                  const Reduction& reduction, int root) {
  const size_t ranks = static_cast<size_t>(link.size());
  const size_t self = static_cast<size_t>(link.rank());
  const size_t each = (in.count + ranks - 1) / ranks;
  // Slice r of `whole`, which may be `in` or `out`.
  auto slice = [&](const auto& whole, size_t r) {
    const size_t begin = std::min(r * each, in.count);
    return whole.slice(begin, std::min(each, in.count - begin));
  };
  std::vector<ConstBuffer> parts;
  for (size_t r = 0; r < ranks; ++r) parts.push_back(slice(in, r));

  // The root's own slice goes where it belongs at once; the others need room for theirs.
  const bool isRoot = link.rank() == root;
  const std::unique_ptr<char[]> room(isRoot ? nullptr : new char[parts[self].bytes()]);
  const Buffer mine =
      isRoot ? slice(out, self) : Buffer{room.get(), parts[self].count, in.dtype};
  link.reduceScatter(op, parts, mine, reduction);

  std::vector<Buffer> outs;
  if (isRoot) {
    for (size_t r = 0; r < ranks; ++r) outs.push_back(slice(out, r));
  }
  gather(link, op, mine, outs, root);
}

void barrier(Link& link, const OpContext& op) {
  int8_t token = 0;
  link.allReduce(op, Buffer{&token, 1, DType::kInt8}, onlyLevel(ReduceOp::kBor, DType::kInt8, 1));
}

}  // namespace taco
