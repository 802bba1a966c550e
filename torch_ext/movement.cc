// Operations that move elements and never add them up: broadcast, the gathers, scatter, all-to-all,
// barrier. They take every dtype.
#include <algorithm>
#include <numeric>

#include "csrc/base/format.h"
#include "torch_ext/process_group_taco.h"
#include "torch_ext/tensors.h"

namespace taco {
namespace {

using Access = Staged::Access;
using Tensors = std::vector<at::Tensor>;

void requireCount(const char* operation, const char* argument, size_t count, size_t expected) {
  if (count == expected) return;
  refuse(operation, str(argument, " has ", count, " tensors where ", expected, " are needed"));
}

void requireNumel(const char* operation, const std::string& argument, const at::Tensor& tensor,
                  int64_t numel, const std::string& because) {
  if (tensor.numel() == numel) return;
  refuse(operation, str(argument, " of shape ", shapeOf(tensor), " has ", tensor.numel(),
                        " elements where ", numel, " are needed: ", because));
}

// A tensor that must hold the parts of all ranks one after the other.
void requireWhole(const char* operation, const char* whole, const at::Tensor& all,
                  const char* part, const at::Tensor& one, int ranks) {
  requireNumel(operation, whole, all, one.numel() * ranks,
               str(ranks, " ranks times the ", one.numel(), " of ", part, " ", shapeOf(one)));
}

std::vector<Buffer> buffersOf(const std::vector<Staged>& staged) {
  std::vector<Buffer> buffers;
  buffers.reserve(staged.size());
  for (const Staged& one : staged) buffers.push_back(one.buffer());
  return buffers;
}

std::vector<ConstBuffer> constBuffersOf(const std::vector<Staged>& staged) {
  std::vector<ConstBuffer> buffers;
  buffers.reserve(staged.size());
  for (const Staged& one : staged) buffers.push_back(one.constBuffer());
  return buffers;
}

std::vector<Buffer> equalSlices(const Buffer& whole, int parts) {
  std::vector<Buffer> slices;
  const size_t each = whole.count / static_cast<size_t>(parts);
  for (int i = 0; i < parts; ++i) slices.push_back(whole.slice(each * static_cast<size_t>(i), each));
  return slices;
}

bool sameMemory(const Buffer& a, const Buffer& b) { return a.data == b.data && a.count == b.count; }

// A gather writes parts that other ranks still may want from `input`; only its own slot of the
// output may be the input itself.
void separate(Staged& input, const std::vector<Staged>& outputs, int ownSlot) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].sharesMemory(input)) continue;
    const bool inPlace = static_cast<int>(i) == ownSlot &&
                         sameMemory(outputs[i].buffer(), input.buffer());
    if (!inPlace) input.useTemporary();
  }
}

void separateFromWhole(Staged& input, const Staged& output, int ranks, int ownSlot) {
  if (!output.sharesMemory(input)) return;
  const Buffer own = equalSlices(output.buffer(), ranks)[static_cast<size_t>(ownSlot)];
  if (!sameMemory(own, input.buffer())) input.useTemporary();
}

// One tensor of an all-gather into a list of outputs, which may differ in size.
struct GatherList {
  Staged input;
  std::vector<Staged> outputs;
  bool even = true;

  void run(Collectives& collectives) const {
    input.load();
    const std::vector<Buffer> buffers = buffersOf(outputs);
    if (even) {
      collectives.allGather(input.constBuffer(), buffers);
    } else {
      collectives.allGatherUneven(input.constBuffer(), buffers);
    }
    store(outputs);
  }
};

GatherList gatherList(const char* operation, const Tensors& outputs, const at::Tensor& input,
                      int rank, int ranks) {
  requireDenseCpu(operation, "the input", input);
  requireCount(operation, "the output list", outputs.size(), static_cast<size_t>(ranks));
  requireDenseCpu(operation, "outputs", outputs);
  for (const at::Tensor& output : outputs) requireSameDtype(operation, "an output", output, input);
  requireNumel(operation, str("output ", rank), outputs[static_cast<size_t>(rank)], input.numel(),
               str("it receives this rank's own input ", shapeOf(input)));
  GatherList list{Staged(operation, "the input", input, Access::kRead),
                  stageAll(operation, "an output", outputs, Access::kWrite)};
  list.even = std::all_of(outputs.begin(), outputs.end(),
                          [&](const at::Tensor& one) { return one.numel() == input.numel(); });
  separate(list.input, list.outputs, rank);
  return list;
}

// One tensor of an all-gather into one long output.
struct GatherWhole {
  Staged input;
  Staged output;

  void run(Collectives& collectives) const {
    input.load();
    collectives.allGather(input.constBuffer(), equalSlices(output.buffer(), collectives.size()));
    output.store();
  }
};

GatherWhole gatherWhole(const char* operation, const at::Tensor& output, const at::Tensor& input,
                        int rank, int ranks) {
  requireDenseCpu(operation, "the input", input);
  requireDenseCpu(operation, "the output", output);
  requireSameDtype(operation, "the output", output, input);
  requireWhole(operation, "the output", output, "the input", input, ranks);
  GatherWhole whole{Staged(operation, "the input", input, Access::kRead),
                    Staged(operation, "the output", output, Access::kWrite)};
  separateFromWhole(whole.input, whole.output, ranks, rank);
  return whole;
}

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

c10::intrusive_ptr<c10d::Work> ProcessGroupTaco::allgather(
    std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  const char* operation = "all_gather";
  requireCount(operation, "the input list", inputs.size(), 1);
  requireCount(operation, "the list of output lists", outputs.size(), 1);
  GatherList list = gatherList(operation, outputs[0], inputs[0], rank_, size_);
  return launch({c10d::OpType::ALLGATHER, "taco:all_gather", opts.timeout, opts.asyncOp, inputs,
                 outputs[0]},
                [list = std::move(list)](Collectives& collectives) { list.run(collectives); });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupTaco::_allgather_base(
    at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) {
  GatherWhole whole = gatherWhole("all_gather_into_tensor", output, input, rank_, size_);
  return launch({c10d::OpType::_ALLGATHER_BASE, "taco:_allgather_base", opts.timeout, opts.asyncOp,
                 {input}, {output}},
                [whole = std::move(whole)](Collectives& collectives) { whole.run(collectives); });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupTaco::allgather_coalesced(
    std::vector<Tensors>& outputLists, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  const char* operation = "all_gather_coalesced";
  requireCount(operation, "the list of output lists", outputLists.size(),
               static_cast<size_t>(size_));
  for (const Tensors& ofRank : outputLists) {
    requireCount(operation, "an output list", ofRank.size(), inputs.size());
  }
  std::vector<GatherList> lists;
  Tensors allOutputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors outputs;  // of this input, by rank
    for (const Tensors& ofRank : outputLists) outputs.push_back(ofRank[i]);
    lists.push_back(gatherList(operation, outputs, inputs[i], rank_, size_));
    allOutputs.insert(allOutputs.end(), outputs.begin(), outputs.end());
  }
  return launch({c10d::OpType::ALLGATHER_COALESCED, "taco:all_gather", opts.timeout, opts.asyncOp,
                 inputs, std::move(allOutputs)},
                [lists = std::move(lists)](Collectives& collectives) {
                  for (const GatherList& list : lists) list.run(collectives);
                });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupTaco::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  const char* operation = "all_gather_into_tensor_coalesced";
  requireCount(operation, "the output list", outputs.size(), inputs.size());
  std::vector<GatherWhole> wholes;
  for (size_t i = 0; i < inputs.size(); ++i) {
    wholes.push_back(gatherWhole(operation, outputs[i], inputs[i], rank_, size_));
  }
  return launch({c10d::OpType::COALESCED, "taco:all_gather_into_tensor_coalesced", opts.timeout,
                 opts.asyncOp, inputs, outputs},
                [wholes = std::move(wholes)](Collectives& collectives) {
                  for (const GatherWhole& whole : wholes) whole.run(collectives);
                });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupTaco::gather(std::vector<Tensors>& outputs,
                                                        Tensors& inputs,
                                                        const c10d::GatherOptions& opts) {
  const char* operation = "gather";
  requireRank(operation, "the root rank", opts.rootRank);
  requireCount(operation, "the input list", inputs.size(), 1);
  requireDenseCpu(operation, "the input", inputs[0]);
  const int root = static_cast<int>(opts.rootRank);
  Staged input(operation, "the input", inputs[0], Access::kRead);
  std::vector<Staged> gathered;
  if (rank_ == root) {
    requireCount(operation, "the list of output lists on the root", outputs.size(), 1);
    requireCount(operation, "the output list on the root", outputs[0].size(),
                 static_cast<size_t>(size_));
    requireDenseCpu(operation, "outputs", outputs[0]);
    for (const at::Tensor& output : outputs[0]) {
      requireSameDtype(operation, "an output", output, inputs[0]);
      requireNumel(operation, "an output", output, inputs[0].numel(),
                   str("every rank sends as much as the input ", shapeOf(inputs[0])));
    }
    gathered = stageAll(operation, "an output", outputs[0], Access::kWrite);
    separate(input, gathered, rank_);
  } else if (!outputs.empty() && !(outputs.size() == 1 && outputs[0].empty())) {
    refuse(operation, str("rank ", rank_, " passes an output list, but only the root, rank ", root,
                          ", receives anything"));
  }
  return launch({c10d::OpType::GATHER, "taco:gather", opts.timeout, opts.asyncOp, inputs,
                 rank_ == root ? outputs[0] : Tensors{}},
                [input, gathered, root](Collectives& collectives) {
                  input.load();
                  collectives.gather(input.constBuffer(), buffersOf(gathered), root);
                  store(gathered);
                });
}

#ifdef C10D_BACKEND_HAS_HOOKS
c10::intrusive_ptr<c10d::Work> ProcessGroupTaco::gather_single(at::Tensor& output,
                                                               at::Tensor& input,
                                                               const c10d::GatherOptions& opts) {
  const char* operation = "gather_single";
  requireRank(operation, "the root rank", opts.rootRank);
  requireDenseCpu(operation, "the input", input);
  const int root = static_cast<int>(opts.rootRank);
  Staged source(operation, "the input", input, Access::kRead);
  std::optional<Staged> whole;
  if (rank_ == root) {
    requireDenseCpu(operation, "the output", output);
    requireSameDtype(operation, "the output", output, input);
    requireWhole(operation, "the output", output, "the input", input, size_);
    whole.emplace(operation, "the output", output, Access::kWrite);
    separateFromWhole(source, *whole, size_, rank_);
  }
  return launch({c10d::OpType::GATHER, "taco:gather", opts.timeout, opts.asyncOp, {input},
                 rank_ == root ? Tensors{output} : Tensors{}},
                [source, whole, root](Collectives& collectives) {
                  source.load();
                  std::vector<Buffer> slots;
                  if (whole) slots = equalSlices(whole->buffer(), collectives.size());
                  collectives.gather(source.constBuffer(), slots, root);
                  if (whole) whole->store();
                });
}
#endif

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
