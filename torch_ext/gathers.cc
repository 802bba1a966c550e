// The gathers: every rank's elements to all ranks, or to one. They take every dtype.
#include "csrc/base/format.h"
#include "torch_ext/arguments.h"
#include "torch_ext/process_group_taco.h"
#include "torch_ext/tensors.h"

namespace taco {
namespace {

using Access = Staged::Access;
using Tensors = std::vector<at::Tensor>;

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

  void run(Collectives& collectives) const {
    input.load();
    collectives.allGather(input.constBuffer(), buffersOf(outputs));
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

}  // namespace

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

}  // namespace taco
