// Operations that add up (or multiply, compare, ...) elements of all ranks.
#include <algorithm>

#include "csrc/base/format.h"
#include "torch_ext/process_group_taco.h"
#include "torch_ext/reduce_spec.h"
#include "torch_ext/sparse_sum.h"
#include "torch_ext/tensors.h"

namespace taco {
namespace {

using Access = Staged::Access;
using Tensors = std::vector<at::Tensor>;

constexpr int64_t kMaxSparseDims = 16;

void requireOne(const char* operation, const char* argument, size_t count) {
  if (count == 1) return;
  refuse(operation, str(argument, " has ", count, " elements where 1 is needed"));
}

void allReduce(Collectives& collectives, Buffer buffer, const ReduceSpec& spec,
               const std::optional<Compression>& compression) {
  if (compression) {
    collectives.allReduce(buffer, spec, *compression);
  } else {
    collectives.allReduce(buffer, spec);
  }
}

// Reduces `inputs[r]` of all ranks into the output of rank r.
struct ReduceScatter {
  std::vector<Staged> inputs;  // P of them, or one that holds all P parts
  Staged output;
  ReduceSpec spec;

  std::vector<ConstBuffer> parts(int ranks) const {
    std::vector<ConstBuffer> buffers;
    if (inputs.size() == static_cast<size_t>(ranks)) {
      for (const Staged& input : inputs) buffers.push_back(input.constBuffer());
      return buffers;
    }
    const ConstBuffer whole = inputs[0].constBuffer();
    for (int r = 0; r < ranks; ++r) {
      buffers.push_back(whole.slice(static_cast<size_t>(r) * output.count(), output.count()));
    }
    return buffers;
  }

  void run(Collectives& collectives) const {
    load(inputs);
    const std::vector<ConstBuffer> buffers = parts(collectives.size());
    const bool even = std::all_of(buffers.begin(), buffers.end(), [&](const ConstBuffer& one) {
      return one.count == output.count();
    });
    if (even) {
      collectives.reduceScatter(buffers, output.buffer(), spec);
    } else {
      // Parts of different sizes: one reduction for each rank. Every rank knows all sizes.
      for (int root = 0; root < collectives.size(); ++root) {
        const Buffer out = root == collectives.rank() ? output.buffer() : Buffer{};
        collectives.reduce(buffers[static_cast<size_t>(root)], out, spec, root);
      }
    }
    output.store();
  }
};

ReduceScatter reduceScatter(const char* operation, const at::Tensor& output, const Tensors& inputs,
                            const c10d::ReduceOp& op) {
  requireDenseCpu(operation, "the output", output);
  requireDenseCpu(operation, "inputs", inputs);
  for (const at::Tensor& input : inputs) requireSameDtype(operation, "an input", input, output);
  ReduceScatter plan{stageAll(operation, "an input", inputs, Access::kRead),
                     Staged(operation, "the output", output, Access::kWrite),
                     reduceSpec(operation, op, output)};
  // The output is written while inputs are still read: where they are the same memory, it waits.
  for (const Staged& input : plan.inputs) {
    if (plan.output.sharesMemory(input)) plan.output.useTemporary();
  }
  return plan;
}

ReduceScatter reduceScatterWhole(const char* operation, const at::Tensor& output,
                                 const at::Tensor& input, const c10d::ReduceOp& op, int ranks) {
  ReduceScatter plan = reduceScatter(operation, output, {input}, op);
  if (input.numel() != output.numel() * ranks) {
    refuse(operation, str("the input of shape ", shapeOf(input), " has ", input.numel(),
                          " elements where ", output.numel() * ranks, " are needed: ", ranks,
                          " ranks times the ", output.numel(), " of the output ",
                          shapeOf(output)));
  }
  return plan;
}

}  // namespace

c10::intrusive_ptr<c10d::Work> ProcessGroupTaco::allreduce(Tensors& tensors,
                                                           const c10d::AllreduceOptions& opts) {
  const char* operation = "all_reduce";
  requireOne(operation, "the tensor list", tensors.size());
  if (tensors[0].defined() && tensors[0].layout() == c10::kSparse) {
    return allreduce_sparse(tensors, opts);
  }
  requireDenseCpu(operation, "the tensor", tensors[0]);
  const ReduceSpec spec = reduceSpec(operation, opts.reduceOp, tensors[0]);
  const Staged tensor(operation, "the tensor", tensors[0], Access::kReadWrite);
  return launch({c10d::OpType::ALLREDUCE, "taco:all_reduce", opts.timeout, opts.asyncOp, tensors,
                 tensors},
                [tensor, spec, compression = compressionOf(tensors[0], spec)](
                    Collectives& collectives) {
                  tensor.load();
                  allReduce(collectives, tensor.buffer(), spec, compression);
                  tensor.store();
                });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupTaco::allreduce_sparse(
    Tensors& tensors, const c10d::AllreduceOptions& opts) {
  const char* operation = "sparse all_reduce";
  requireOne(operation, "the tensor list", tensors.size());
  const at::Tensor& tensor = tensors[0];
  if (tensor.layout() != c10::kSparse) {
    refuse(operation, "the tensor is not sparse (COO); call all_reduce");
  }
  if (!tensor.device().is_cpu()) {
    refuse(operation, str("the tensor is on ", tensor.device().str(),
                          ", but this version of TACO communicates CPU tensors only"));
  }
  if (tensor.dim() > kMaxSparseDims) {
    refuse(operation, str("the tensor has ", tensor.dim(), " dimensions; the most is ",
                          kMaxSparseDims));
  }
  const ReduceSpec spec = reduceSpec(operation, opts.reduceOp, tensor);
  if (spec.op != ReduceOp::kSum && spec.op != ReduceOp::kAvg) {
    refuse(operation, str(name(spec.op), " of sparse tensors is not supported; use SUM or AVG"));
  }
  return launch({c10d::OpType::_ALLREDUCE_SPARSE, "taco:sparse_all_reduce", opts.timeout,
                 opts.asyncOp, tensors, tensors},
                [tensor, spec](Collectives& collectives) {
                  sparseSum(collectives, tensor, spec);
                });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupTaco::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  const char* operation = "all_reduce_coalesced";
  if (tensors.empty()) refuse(operation, "the tensor list is empty");
  requireDenseCpu(operation, "tensors", tensors);
  std::vector<ReduceSpec> specs;
  std::vector<std::optional<Compression>> compressions;
  for (const at::Tensor& one : tensors) {
    specs.push_back(reduceSpec(operation, opts.reduceOp, one));
    compressions.push_back(compressionOf(one, specs.back()));
  }
  std::vector<Staged> staged = stageAll(operation, "a tensor", tensors, Access::kReadWrite);
  return launch({c10d::OpType::ALLREDUCE_COALESCED, "taco:all_reduce", opts.timeout, opts.asyncOp,
                 tensors, tensors},
                [staged = std::move(staged), specs = std::move(specs),
                 compressions = std::move(compressions)](Collectives& collectives) {
                  for (size_t i = 0; i < staged.size(); ++i) {
                    staged[i].load();
                    allReduce(collectives, staged[i].buffer(), specs[i], compressions[i]);
                    staged[i].store();
                  }
                });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupTaco::reduce(Tensors& tensors,
                                                        const c10d::ReduceOptions& opts) {
  const char* operation = "reduce";
  requireOne(operation, "the tensor list", tensors.size());
  requireDenseCpu(operation, "the tensor", tensors[0]);
  requireRank(operation, "the root rank", opts.rootRank);
  if (opts.rootTensor != 0) {
    refuse(operation, str("the root tensor is ", opts.rootTensor, ", but there is one tensor"));
  }
  const int root = static_cast<int>(opts.rootRank);
  const ReduceSpec spec = reduceSpec(operation, opts.reduceOp, tensors[0]);
  const Staged tensor(operation, "the tensor", tensors[0],
                      root == rank_ ? Access::kReadWrite : Access::kRead);
  return launch({c10d::OpType::REDUCE, "taco:reduce", opts.timeout, opts.asyncOp, tensors, tensors},
                [tensor, spec, root](Collectives& collectives) {
                  tensor.load();
                  const bool isRoot = root == collectives.rank();
                  collectives.reduce(tensor.constBuffer(), isRoot ? tensor.buffer() : Buffer{},
                                     spec, root);
                  tensor.store();
                });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupTaco::reduce_scatter(
    Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& opts) {
  const char* operation = "reduce_scatter";
  requireOne(operation, "the output list", outputs.size());
  requireOne(operation, "the list of input lists", inputs.size());
  if (inputs[0].size() != static_cast<size_t>(size_)) {
    refuse(operation, str("the input list has ", inputs[0].size(), " tensors where ", size_,
                          " are needed, one for each rank"));
  }
  ReduceScatter plan = reduceScatter(operation, outputs[0], inputs[0], opts.reduceOp);
  const at::Tensor& own = inputs[0][static_cast<size_t>(rank_)];
  if (own.numel() != outputs[0].numel()) {
    refuse(operation, str("the output ", shapeOf(outputs[0]), " receives the reduction of input ",
                          rank_, " ", shapeOf(own), ", which has another number of elements"));
  }
  return launch({c10d::OpType::REDUCE_SCATTER, "taco:reduce_scatter", opts.timeout, opts.asyncOp,
                 inputs[0], outputs},
                [plan = std::move(plan)](Collectives& collectives) { plan.run(collectives); });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupTaco::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  ReduceScatter plan =
      reduceScatterWhole("reduce_scatter_tensor", output, input, opts.reduceOp, size_);
  return launch({c10d::OpType::_REDUCE_SCATTER_BASE, "taco:_reduce_scatter_base", opts.timeout,
                 opts.asyncOp, {input}, {output}},
                [plan = std::move(plan)](Collectives& collectives) { plan.run(collectives); });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupTaco::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
  const char* operation = "reduce_scatter_tensor_coalesced";
  if (outputs.size() != inputs.size()) {
    refuse(operation, str("there are ", outputs.size(), " outputs and ", inputs.size(),
                          " inputs; each input needs one output"));
  }
  std::vector<ReduceScatter> plans;
  for (size_t i = 0; i < inputs.size(); ++i) {
    plans.push_back(reduceScatterWhole(operation, outputs[i], inputs[i], opts.reduceOp, size_));
  }
  return launch({c10d::OpType::COALESCED, "taco:reduce_scatter_tensor_coalesced", opts.timeout,
                 opts.asyncOp, inputs, outputs},
                [plans = std::move(plans)](Collectives& collectives) {
                  for (const ReduceScatter& plan : plans) plan.run(collectives);
                });
}

}  // namespace taco
