// TopK-compressed all-reduce, and what is left over from it.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "csrc/base/format.h"
#include "torch_ext/errors.h"
#include "torch_ext/exact.h"
#include "torch_ext/process_group_taco.h"
#include "torch_ext/tensors.h"

namespace taco {
namespace {

thread_local bool exactHere = false;

at::Tensor copyOf(const std::vector<float>& values) {
  at::Tensor copy = at::empty({static_cast<int64_t>(values.size())}, at::kFloat);
  if (!values.empty()) std::memcpy(copy.data_ptr(), values.data(), values.size() * sizeof(float));
  return copy;
}

std::vector<float> valuesOf(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  const float* const data = dense.const_data_ptr<float>();
  return std::vector<float>(data, data + dense.numel());
}

}  // namespace

bool isExact() { return exactHere; }
bool setExact(bool exact) { return std::exchange(exactHere, exact); }

std::optional<Compression> ProcessGroupTaco::compressionOf(const at::Tensor& tensor,
                                                           const ReduceSpec& spec) {
  AllreduceRequest request;
  request.bytes = static_cast<uint64_t>(tensor.numel()) * tensor.element_size();
  request.dtype = dtypeOf(tensor);
  request.op = spec.op;
  if (isExact() || !communicator_->mayCompress(request)) return std::nullopt;
  // torch hands complex numbers over as pairs of real ones; those belong together.
  if (tensor.is_view() && tensor._base().is_complex()) return std::nullopt;
  requireUsable();
  return Compression{identities_->of(tensor), std::nullopt};
}

c10::intrusive_ptr<c10d::Work> ProcessGroupTaco::topkAllreduce(const at::Tensor& tensor,
                                                               const TopkRequest& request,
                                                               bool average, Millis timeout) {
  const char* operation = "topk_all_reduce";
  requireUsable();
  requireDenseCpu(operation, "the tensor", tensor);
  if (!(request.ratio > 0 && request.ratio <= 1)) {
    refuse(operation, str("ratio is ", request.ratio,
                          "; it must be above 0, and at most 1 (1: everything is sent)"));
  }
  if (!(request.momentum >= 0 && request.momentum < 1)) {
    refuse(operation, str("momentum is ", request.momentum, "; it must be from 0 to below 1"));
  }
  ReduceSpec spec;
  spec.op = average ? ReduceOp::kAvg : ReduceOp::kSum;
  if (!mayBeLossy(dtypeOf(tensor), spec.op)) {
    refuse(operation, str("the tensor is ", dtypeName(tensor),
                          "; only float32, float16 and bfloat16 are compressed"));
  }
  const Staged staged(operation, "the tensor", tensor, Staged::Access::kReadWrite);
  const Compression compression{identities_->of(tensor), request};
  return launch({c10d::OpType::ALLREDUCE, "taco:topk_all_reduce", timeout, true, {tensor}, {tensor}},
                [staged, spec, compression](Collectives& collectives) {
                  staged.load();
                  collectives.allReduce(staged.buffer(), spec, compression);
                  staged.store();
                });
}

ResidualKey ProcessGroupTaco::residualKey(const at::Tensor& tensor) {
  requireUsable();
  requireDenseCpu("residual", "the tensor", tensor);
  const BufferIdentity identity = identities_->of(tensor);
  return {identity.storage, identity.offsetBytes, identity.layout, static_cast<uint64_t>(tensor.numel()),
          dtypeOf(tensor)};
}

std::optional<ProcessGroupTaco::ResidualCopy> ProcessGroupTaco::residualOf(
    const at::Tensor& tensor) {
  const ResidualKey key = residualKey(tensor);
  std::optional<ResidualCopy> copy;
  translated("residual_of", [&] {
    communicator_->withResiduals([&](Residuals& residuals) {
      const auto found = residuals.find(key);
      if (!found) return;
      copy.emplace(ResidualCopy{name(found->domain), copyOf(found->values), at::Tensor()});
      if (!found->momentum.empty()) copy->momentum = copyOf(found->momentum);
    });
  });
  return copy;
}

void ProcessGroupTaco::setResidual(const at::Tensor& tensor, const ResidualCopy& copy) {
  const char* operation = "set_residual";
  const ResidualKey key = residualKey(tensor);
  const Communicator::ResidualPlace place = communicator_->residualPlace(key.count, key.dtype);
  if (copy.domain != name(place.domain)) {
    refuse(operation, str("the residual is of kind '", copy.domain, "', but on this grid (",
                          communicator_->size(), " ranks) an all-reduce of ", key.count,
                          " elements has one of kind '", name(place.domain),
                          "': it was saved on another grid; reset it instead"));
  }
  for (const at::Tensor& one : {copy.residual, copy.momentum}) {
    if (!one.defined()) continue;
    requireDenseCpu(operation, "the residual", one);
    if (one.scalar_type() != at::kFloat || one.numel() != static_cast<int64_t>(place.count)) {
      refuse(operation, str("the residual has ", one.numel(), " elements of ", dtypeName(one),
                            ", but this rank's part of the buffer has ", place.count,
                            " of torch.float32: it was saved by another rank or on another grid; "
                            "reset it instead"));
    }
  }
  if (!copy.residual.defined()) refuse(operation, "there is no residual; reset it instead");
  translated(operation, [&] {
    communicator_->withResiduals([&](Residuals& residuals) {
      const auto residual = residuals.of(key, place.domain, place.begin, place.count);
      residual->values = valuesOf(copy.residual);
      residual->momentum =
          copy.momentum.defined() ? valuesOf(copy.momentum) : std::vector<float>();
    });
  });
}

ResidualStats ProcessGroupTaco::residualStats() {
  requireUsable();
  identities_->sweep();
  ResidualStats stats;
  translated("residual_stats", [&] {
    communicator_->withResiduals([&](Residuals& residuals) { stats = residuals.stats(); });
  });
  return stats;
}

void ProcessGroupTaco::scaleResiduals(double factor, const at::Tensor& tensor) {
  if (!std::isfinite(static_cast<float>(factor))) {
    refuse("scale_residuals", str("factor is ", factor, "; it must be a finite float32"));
  }
  std::optional<ResidualKey> only;
  if (tensor.defined()) only = residualKey(tensor);
  translated("scale_residuals", [&] {
    communicator_->withResiduals([&](Residuals& residuals) {
      std::vector<std::shared_ptr<Residual>> chosen;
      if (only) {
        chosen.push_back(residuals.find(*only));
      } else {
        chosen = residuals.all();
      }
      for (const auto& residual : chosen) {
        if (residual) residual->scale(static_cast<float>(factor));
      }
    });
  });
}

}  // namespace taco
