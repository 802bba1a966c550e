#include "csrc/communicator/group_collectives.h"

#include <complex>

#include "csrc/allreduce/two_d.h"
#include "csrc/base/format.h"
#include "csrc/collective/compose.h"
#include "csrc/topology/fields.h"

namespace taco {
namespace {

std::complex<double> factorOf(const ReduceSpec& spec) { return {spec.factorReal, spec.factorImag}; }

void requireMeaning(const ReduceSpec& spec, DType dtype) {
  if (const auto why = whyUnsupported(spec.op, dtype)) throw Error(ErrorCode::kUnsupported, *why);
}

template <typename Span>
uint64_t hashCounts(const Span& buffers) {
  uint64_t hash = buffers.size();
  for (const auto& buffer : buffers) hash = mixHash(hash, buffer.count);
  return hash;
}

}  // namespace

OpContext GroupCollectives::next(OpKind kind, DType dtype, uint64_t count, int root) {
  OpContext op;
  op.call.sequence = ++sequence_;
  op.call.op = kind;
  op.call.dtype = dtype;
  op.call.count = count;
  op.call.root = root;
  op.deadline = deadline_;
  op.longWait = this;
  current_ = op.call;
  return op;
}

OpContext GroupCollectives::next(OpKind kind, DType dtype, uint64_t count, const ReduceSpec& spec,
                                 int root) {
  OpContext op = next(kind, dtype, count, root);
  op.call.hasReduceOp = 1;
  op.call.reduceOp = spec.op;
  current_ = op.call;
  return op;
}

void GroupCollectives::waitingFor(int rank) {
  auto key = [](int of) { return str("doing/", of); };
  std::vector<std::string> theirs;
  try {
    if (shown_ != current_.sequence) {
      store_.set(key(this->rank()), pack({str(current_.sequence), current_.describe()}));
      shown_ = current_.sequence;
    }
    const std::optional<std::string> record = store_.peek(key(rank));
    if (record) theirs = unpack(*record);
  } catch (const Error&) {
    return;  // no store, no answer: the deadline decides
  }
  // What it was in before, or will be in later, says nothing about this operation.
  if (theirs.size() != 2 || theirs[0] != str(current_.sequence)) return;
  if (theirs[1] == current_.describe()) return;
  throw Error(ErrorCode::kMismatch,
              str("the ranks of this group do different things: rank ", rank, " is in ", theirs[1],
                  ", but rank ", this->rank(), " is in ", current_.describe()),
              rank);
}

void GroupCollectives::checkRoot(const char* op, int root) const {
  if (root < 0 || root >= size()) {
    throw Error(ErrorCode::kInvalidArgument,
                str(op, ": the root is ", root, ", but the ranks of this group are 0 to ",
                    size() - 1));
  }
}

void GroupCollectives::broadcast(Buffer buffer, int root) {
  checkRoot("broadcast", root);
  const OpContext op = next(OpKind::kBroadcast, buffer.dtype, buffer.count, root);
  links_.flat().broadcast(op, buffer, root);
}

void GroupCollectives::allReduce(Buffer buffer, const ReduceSpec& spec) {
  requireMeaning(spec, buffer.dtype);
  const OpContext op = next(OpKind::kAllReduce, buffer.dtype, buffer.count, spec);
  const AllreducePlan plan =
      chooseAllreduce({buffer.bytes(), buffer.dtype, spec.op}, grid_, settings_);
  switch (plan.algorithm) {
    case AllreduceAlgorithm::kFlat:
      links_.flat().allReduce(op, buffer,
                              onlyLevel(spec.op, buffer.dtype, size(), factorOf(spec)));
      return;
    case AllreduceAlgorithm::k2d:
      allReduce2d(op, buffer,
                  {firstLevel(spec.op, buffer.dtype, factorOf(spec)),
                   lastLevel(spec.op, buffer.dtype, size())},
                  links_.twoD(), plan.pieceBytes);
      return;
  }
}

void GroupCollectives::reduce(ConstBuffer in, Buffer out, const ReduceSpec& spec, int root) {
  checkRoot("reduce", root);
  requireMeaning(spec, in.dtype);
  const OpContext op = next(OpKind::kReduce, in.dtype, in.count, spec, root);
  reduceToRoot(links_.flat(), op, in, out,
               onlyLevel(spec.op, in.dtype, size(), factorOf(spec)), root);
}

void GroupCollectives::allGather(ConstBuffer in, std::span<const Buffer> outs) {
  allGatherUneven(in, outs);
}

void GroupCollectives::allGatherUneven(ConstBuffer in, std::span<const Buffer> outs) {
  // A rank that gives less than it expects of itself would be found by nobody else.
  if (in.count != outs[static_cast<size_t>(rank())].count) {
    throw Error(ErrorCode::kInvalidArgument,
                str("all_gather: this rank's input has ", in.count,
                    " elements, but its place in the output has ",
                    outs[static_cast<size_t>(rank())].count));
  }
  OpContext op = next(OpKind::kAllGather, in.dtype, 0);
  for (const Buffer& out : outs) op.call.count += out.count;
  op.call.detail = hashCounts(outs);
  current_ = op.call;
  links_.flat().allGather(op, in, outs);
}

void GroupCollectives::gather(ConstBuffer in, std::span<const Buffer> outs, int root) {
  checkRoot("gather", root);
  // Sizes may differ between ranks: the exchange itself compares them.
  const OpContext op = next(OpKind::kGather, in.dtype, 0, root);
  taco::gather(links_.flat(), op, in, outs, root);
}

void GroupCollectives::scatter(std::span<const ConstBuffer> ins, Buffer out, int root) {
  checkRoot("scatter", root);
  const OpContext op = next(OpKind::kScatter, out.dtype, 0, root);
  taco::scatter(links_.flat(), op, ins, out, root);
}

void GroupCollectives::reduceScatter(std::span<const ConstBuffer> ins, Buffer out,
                                     const ReduceSpec& spec) {
  requireMeaning(spec, out.dtype);
  if (out.count != ins[static_cast<size_t>(rank())].count) {
    throw Error(ErrorCode::kInvalidArgument,
                str("reduce_scatter: the output has ", out.count,
                    " elements, but this rank's part of the input has ",
                    ins[static_cast<size_t>(rank())].count));
  }
  OpContext op = next(OpKind::kReduceScatter, out.dtype, 0, spec);
  for (const ConstBuffer& in : ins) op.call.count += in.count;
  op.call.detail = hashCounts(ins);
  current_ = op.call;
  links_.flat().reduceScatter(op, ins, out,
                              onlyLevel(spec.op, out.dtype, size(), factorOf(spec)));
}

void GroupCollectives::allToAll(std::span<const ConstBuffer> sends,
                                std::span<const Buffer> receives) {
  const DType dtype = sends.empty() ? DType::kInt8 : sends[0].dtype;
  const OpContext op = next(OpKind::kAllToAll, dtype, 0);
  links_.flat().exchange(op, sends, receives);
}

void GroupCollectives::barrier() {
  const OpContext op = next(OpKind::kBarrier, DType::kInt8, 1);
  taco::barrier(links_.flat(), op);
}

}  // namespace taco
