// Operations that move elements and never add them up, but for the gathers (gathers.cc): broadcast,
// scatter, all-to-all, barrier. They take every dtype.
#include "csrc/base/format.h"
#include "torch_ext/arguments.h"
#include "torch_ext/process_group_taco.h"
#include "torch_ext/tensors.h"

namespace taco {
namespace {

using Access = Staged::Access;
using Tensors = std::vector<at::Tensor>;

// Elements that go to or come from each rank. Rows are slices of the first dimension.
std::vector<size_t> splitCounts(const char* argument, const at::Tensor& tensor,
                                const std::vector<int64_t>& splits, int ranks) {
  const char* operation = "all_to_all";
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  std::vector<int64_t> rowsOfRank = splits;
  if (splits.empty()) {
    if (rows % ranks != 0) {
      refuse(operation, str(argument, " of shape ", shapeOf(tensor), " has ", rows,
                            " rows, which ", ranks,
                            " ranks cannot share evenly; pass split sizes"));
    }
    rowsOfRank.assign(static_cast<size_t>(ranks), rows / ranks);
  }
  if (rowsOfRank.size() != static_cast<size_t>(ranks)) {
    refuse(operation, str("the split sizes of ", argument, " are ", rowsOfRank.size(),
                          " numbers where ", ranks, " are needed, one for each rank"));
  }
  int64_t total = 0;
  for (const int64_t one : rowsOfRank) {
    if (one < 0) refuse(operation, str("a split size of ", argument, " is ", one));
    total += one;
  }
  if (total != rows) {
    refuse(operation, str("the split sizes of ", argument, " add up to ", total, ", but its shape ",
                          shapeOf(tensor), " has ", rows, " rows"));
  }
  const int64_t rowElements = rows == 0 ? 0 : tensor.numel() / rows;
  std::vector<size_t> counts;
  for (const int64_t one : rowsOfRank) counts.push_back(static_cast<size_t>(one * rowElements));
  return counts;
}

template <typename AnyBuffer>
std::vector<AnyBuffer> slicesOf(const AnyBuffer& whole, const std::vector<size_t>& counts) {
  std::vector<AnyBuffer> slices;
  size_t offset = 0;
  for (const size_t count : counts) {
    slices.push_back(whole.slice(offset, count));
    offset += count;
  }
  return slices;
}

}  // namespace

c10::intrusive_ptr<c10d::Work> ProcessGroupTaco::broadcast(Tensors& tensors,
                                                           const c10d::BroadcastOptions& opts) {
  const char* operation = "broadcast";
  requireCount(operation, "the tensor list", tensors.size(), 1);
  requireDenseCpu(operation, "the tensor", tensors[0]);
  requireRank(operation, "the root rank", opts.rootRank);
  if (opts.rootTensor != 0) {
    refuse(operation, str("the root tensor is ", opts.rootTensor, ", but there is one tensor"));
  }
  const int root = static_cast<int>(opts.rootRank);
  const Staged tensor(operation, "the tensor", tensors[0],
                      root == rank_ ? Access::kRead : Access::kWrite);
  return launch({c10d::OpType::BROADCAST, "taco:broadcast", opts.timeout, opts.asyncOp, tensors,
                 tensors},
                [tensor, root](Collectives& collectives) {
                  tensor.load();
                  collectives.broadcast(tensor.buffer(), root);
                  tensor.store();
                });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupTaco::scatter(Tensors& outputs,
                                                         std::vector<Tensors>& inputs,
                                                         const c10d::ScatterOptions& opts) {
  const char* operation = "scatter";
  requireRank(operation, "the root rank", opts.rootRank);
  requireCount(operation, "the output list", outputs.size(), 1);
  requireDenseCpu(operation, "the output", outputs[0]);
  const int root = static_cast<int>(opts.rootRank);
  Staged output(operation, "the output", outputs[0], Access::kWrite);
  std::vector<Staged> scattered;
  if (rank_ == root) {
    requireCount(operation, "the list of input lists on the root", inputs.size(), 1);
    requireCount(operation, "the input list on the root", inputs[0].size(),
                 static_cast<size_t>(size_));
    requireDenseCpu(operation, "inputs", inputs[0]);
    for (const at::Tensor& input : inputs[0]) {
      requireSameDtype(operation, "an input", input, outputs[0]);
      requireNumel(operation, "an input", input, outputs[0].numel(),
                   str("every rank receives as much as the output ", shapeOf(outputs[0])));
    }
    scattered = stageAll(operation, "an input", inputs[0], Access::kRead);
    for (const Staged& input : scattered) {
      if (output.sharesMemory(input)) output.useTemporary();
    }
  } else if (!inputs.empty() && !(inputs.size() == 1 && inputs[0].empty())) {
    refuse(operation, str("rank ", rank_, " passes an input list, but only the root, rank ", root,
                          ", sends anything"));
  }
  return launch({c10d::OpType::SCATTER, "taco:scatter", opts.timeout, opts.asyncOp,
                 rank_ == root ? inputs[0] : Tensors{}, outputs},
                [output, scattered, root](Collectives& collectives) {
                  load(scattered);
                  collectives.scatter(constBuffersOf(scattered), output.buffer(), root);
                  output.store();
                });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupTaco::alltoall_base(
    at::Tensor& output, at::Tensor& input, std::vector<int64_t>& outputSplits,
    std::vector<int64_t>& inputSplits, const c10d::AllToAllOptions& opts) {
  const char* operation = "all_to_all";
  requireDenseCpu(operation, "the input", input);
  requireDenseCpu(operation, "the output", output);
  requireSameDtype(operation, "the output", output, input);
  Staged source(operation, "the input", input, Access::kRead);
  const Staged sink(operation, "the output", output, Access::kWrite);
  if (sink.sharesMemory(source)) source.useTemporary();
  return launch({c10d::OpType::ALLTOALL_BASE, "taco:all_to_all", opts.timeout, opts.asyncOp,
                 {input}, {output}},
                [source, sink, sends = splitCounts("the input", input, inputSplits, size_),
                 receives = splitCounts("the output", output, outputSplits, size_)](
                    Collectives& collectives) {
                  source.load();
                  collectives.allToAll(slicesOf(source.constBuffer(), sends),
                                       slicesOf(sink.buffer(), receives));
                  sink.store();
                });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupTaco::alltoall(Tensors& outputs, Tensors& inputs,
                                                          const c10d::AllToAllOptions& opts) {
  const char* operation = "all_to_all";
  requireCount(operation, "the output list", outputs.size(), static_cast<size_t>(size_));
  requireCount(operation, "the input list", inputs.size(), static_cast<size_t>(size_));
  requireDenseCpu(operation, "inputs", inputs);
  requireDenseCpu(operation, "outputs", outputs);
  for (const at::Tensor& one : inputs) requireSameDtype(operation, "an input", one, inputs[0]);
  for (const at::Tensor& one : outputs) requireSameDtype(operation, "an output", one, inputs[0]);
  std::vector<Staged> sources = stageAll(operation, "an input", inputs, Access::kRead);
  std::vector<Staged> sinks = stageAll(operation, "an output", outputs, Access::kWrite);
  for (Staged& source : sources) {
    for (const Staged& sink : sinks) {
      if (sink.sharesMemory(source)) source.useTemporary();
    }
  }
  return launch({c10d::OpType::ALLTOALL, "taco:all_to_all", opts.timeout, opts.asyncOp, inputs,
                 outputs},
                [sources = std::move(sources), sinks = std::move(sinks)](Collectives& collectives) {
                  load(sources);
                  collectives.allToAll(constBuffersOf(sources), buffersOf(sinks));
                  store(sinks);
                });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupTaco::barrier(const c10d::BarrierOptions& opts) {
  return launch({c10d::OpType::BARRIER, "taco:barrier", opts.timeout, opts.asyncOp, {}, {}},
                [](Collectives& collectives) { collectives.barrier(); });
}

}  // namespace taco
