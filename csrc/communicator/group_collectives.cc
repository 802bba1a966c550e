#include "csrc/communicator/group_collectives.h"

#include <complex>

#include "csrc/allreduce/two_d.h"
#include "csrc/base/format.h"
#include "csrc/collective/compose.h"
#include "csrc/topk/momentum.h"

namespace taco {
namespace {

std::complex<double> factorOf(const ReduceSpec& spec) { return {spec.factorReal, spec.factorImag}; }

void requireMeaning(const ReduceSpec& spec, DType dtype) {
  if (const auto why = whyUnsupported(spec.op, dtype)) throw Error(ErrorCode::kUnsupported, *why);
}

void requireLossy(Buffer buffer, const ReduceSpec& spec) {
  if (mayBeLossy(buffer.dtype, spec.op)) return;
  throw Error(ErrorCode::kUnsupported,
              str("topk_all_reduce: ", name(spec.op), " of ", name(buffer.dtype),
                  " cannot be compressed; only SUM and AVG of float32, float16 and bfloat16 can"));
}

Call callOf(OpKind kind, DType dtype, uint64_t count = 0, int root = -1) {
  Call call;
  call.op = kind;
  call.dtype = dtype;
  call.count = count;
  call.root = root;
  return call;
}

Call withReduceOp(Call call, const ReduceSpec& spec) {
  call.hasReduceOp = 1;
  call.reduceOp = spec.op;
  return call;
}

// Every rank names the sizes of all parts: their sum for people, a hash for the comparison.
template <typename Span>
Call withParts(Call call, const Span& parts) {
  call.detail = parts.size();
  for (const auto& part : parts) {
    call.count += part.count;
    call.detail = mixHash(call.detail, part.count);
  }
  return call;
}

template <typename Span>
uint64_t elementsOf(const Span& parts) {
  uint64_t count = 0;
  for (const auto& part : parts) count += part.count;
  return count;
}

}  // namespace

TopkLinks topkLinks(const AllreducePlan& plan, Links& links, const Grid& grid) {
  const bool is2d = plan.algorithm == AllreduceAlgorithm::k2d ||
                    plan.algorithm == AllreduceAlgorithm::k2dTopk;
  if (!is2d) return {nullptr, &links.flat(), 1, grid.worldSize()};
  const TwoDLinks& twoD = links.twoD();
  return {twoD.intra, twoD.inter, twoD.columns, grid.numNodes()};
}

OpContext GroupCollectives::begin(Call call, uint64_t elements) {
  call.sequence = ++sequence_;
  current_ = call;
  flight_.begin(call, elements);
  OpContext op;
  op.call = call;
  op.deadline = deadline_;
  op.longWait = this;
  return op;
}

void GroupCollectives::waitingFor(int rank) {
  waitedFor_ = rank;
  askedAt_ = Clock::now();
  board_.compareWith(rank, current_);
}

int GroupCollectives::waitedFor() const {
  return Clock::now() - askedAt_ < 2 * LongWait::kAskAgain ? waitedFor_ : -1;
}

Error GroupCollectives::withOperation(const Error& why) const {
  const std::string said = why.what();
  if (why.code() != ErrorCode::kPeerFailed || current_.sequence == 0 ||
      said.find(name(current_.op)) != std::string::npos) {
    return why;
  }
  return Error(why.code(), str(said, ", while rank ", rank(), " was in ", current_.describe()),
               why.rank());
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
  const OpContext op = begin(callOf(OpKind::kBroadcast, buffer.dtype, buffer.count, root));
  links_.flat().broadcast(op, buffer, root);
}

void GroupCollectives::allReduce(Buffer buffer, const ReduceSpec& spec) {
  requireMeaning(spec, buffer.dtype);
  const OpContext op = begin(withReduceOp(callOf(OpKind::kAllReduce, buffer.dtype, buffer.count), spec));
  denseAllReduce(op, buffer, spec,
                 chooseAllreduce({buffer.bytes(), buffer.dtype, spec.op}, grid_, settings_));
}

void GroupCollectives::denseAllReduce(const OpContext& op, Buffer buffer, const ReduceSpec& spec,
                                      const AllreducePlan& plan) {
  if (plan.algorithm == AllreduceAlgorithm::k2d) {
    allReduce2d(op, buffer,
                {firstLevel(spec.op, buffer.dtype, factorOf(spec)),
                 lastLevel(spec.op, buffer.dtype, size())},
                links_.twoD(), plan.pieceBytes);
  } else {
    links_.flat().allReduce(op, buffer,
                            onlyLevel(spec.op, buffer.dtype, size(), factorOf(spec)));
  }
}

void GroupCollectives::allReduce(Buffer buffer, const ReduceSpec& spec,
                                 const Compression& compression) {
  AllreduceRequest request{buffer.bytes(), buffer.dtype, spec.op};
  double momentum = 0;
  if (compression.topk) {
    requireLossy(buffer, spec);
    request.topkRatio = compression.topk->ratio;
    request.topkFp16 = compression.topk->halfValues;
    momentum = compression.topk->momentum;
  } else if (const double asked = topkRatioOf(request, settings_, 0); asked > 0) {
    request.topkRatio =
        topkRatioOf(request, settings_, residuals_.nextStep(buffer.count, buffer.dtype));
    request.topkFp16 = settings_.topkFp16;
  }
  if (!(request.topkRatio > 0) || !compression.buffer || buffer.count == 0) {
    allReduce(buffer, spec);
    return;
  }

  const AllreducePlan plan = chooseAllreduce(request, grid_, settings_);
  const bool sparse = isTopk(plan.algorithm);
  Call call = withReduceOp(callOf(sparse ? OpKind::kTopkAllReduce : OpKind::kAllReduce,
                                  buffer.dtype, buffer.count),
                           spec);
  call.detail = sparse          ? topkDetail(plan.topkRatio, plan.topkFp16, momentum != 0)
                : momentum != 0 ? kWithMomentum
                                : 0;
  const OpContext op = begin(call);

  const TopkLinks links = topkLinks(plan, links_, grid_);
  const ColumnRange slice = topkSlice(buffer.count, links);
  const ResidualKey key{compression.buffer.storage, compression.buffer.offsetBytes,
                        compression.buffer.layout, buffer.count, buffer.dtype};
  std::shared_ptr<Residual> residual;
  if (sparse || momentum != 0) {
    if (links.inter != nullptr) {
      residual = residuals_.of(key, domainOf(links), slice.begin, slice.count);
    }
    const TopkWork work{sparse ? plan.topkRatio : 1.0,
                        plan.topkFp16 ? TopkValues::kFloat16 : TopkValues::kFloat32, momentum,
                        spec.op == ReduceOp::kAvg ? size() : 1, &residuals_.meter()};
    allReduceTopk(op, buffer, firstLevel(ReduceOp::kSum, buffer.dtype), links, work,
                  residual.get());
    return;
  }
  // Dense, pipelined. What is left from earlier steps goes along: the sum is the same wherever it is
  // added.
  residual = residuals_.find(key);
  if (residual) {
    const Buffer own = buffer.slice(slice.begin, slice.count);
    flushResidual(own, own, residual->values.data());
  }
  denseAllReduce(op, buffer, spec, plan);
}

void GroupCollectives::reduce(ConstBuffer in, Buffer out, const ReduceSpec& spec, int root) {
  checkRoot("reduce", root);
  requireMeaning(spec, in.dtype);
  const OpContext op = begin(withReduceOp(callOf(OpKind::kReduce, in.dtype, in.count, root), spec));
  reduceToRoot(links_.flat(), op, in, out,
               onlyLevel(spec.op, in.dtype, size(), factorOf(spec)), root);
}

void GroupCollectives::allGather(ConstBuffer in, std::span<const Buffer> outs) {
  // A rank that gives less than it expects of itself would be found by nobody else.
  if (in.count != outs[static_cast<size_t>(rank())].count) {
    throw Error(ErrorCode::kInvalidArgument,
                str("all_gather: this rank's input has ", in.count,
                    " elements, but its place in the output has ",
                    outs[static_cast<size_t>(rank())].count));
  }
  const OpContext op = begin(withParts(callOf(OpKind::kAllGather, in.dtype), outs));
  links_.flat().allGather(op, in, outs);
}

void GroupCollectives::gather(ConstBuffer in, std::span<const Buffer> outs, int root) {
  checkRoot("gather", root);
  // Sizes may differ between ranks: the exchange itself compares them.
  const OpContext op = begin(callOf(OpKind::kGather, in.dtype, 0, root), in.count);
  taco::gather(links_.flat(), op, in, outs, root);
}

void GroupCollectives::scatter(std::span<const ConstBuffer> ins, Buffer out, int root) {
  checkRoot("scatter", root);
  const OpContext op = begin(callOf(OpKind::kScatter, out.dtype, 0, root), out.count);
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
  const OpContext op =
      begin(withParts(withReduceOp(callOf(OpKind::kReduceScatter, out.dtype), spec), ins));
  links_.flat().reduceScatter(op, ins, out,
                              onlyLevel(spec.op, out.dtype, size(), factorOf(spec)));
}

void GroupCollectives::allToAll(std::span<const ConstBuffer> sends,
                                std::span<const Buffer> receives) {
  const DType dtype = sends.empty() ? DType::kInt8 : sends[0].dtype;
  const OpContext op = begin(callOf(OpKind::kAllToAll, dtype), elementsOf(sends));
  links_.flat().exchange(op, sends, receives);
}

void GroupCollectives::barrier() {
  const OpContext op = begin(callOf(OpKind::kBarrier, DType::kInt8, 1));
  taco::barrier(links_.flat(), op);
}

std::shared_ptr<void> GroupCollectives::sharedMemory(size_t bytes, std::string* whyNot) {
  const OpContext op = begin(callOf(OpKind::kSharedEmpty, DType::kUInt8, bytes));
  return links_.flat().sharedMemory(op, bytes, whyNot);
}

}  // namespace taco
