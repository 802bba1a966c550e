#include "torch_ext/reduce_spec.h"

#include <ATen/ops/item.h>

#include "csrc/base/format.h"
#include "torch_ext/tensors.h"

namespace taco {
namespace {

void setFactor(const char* operation, const c10d::ReduceOp& op, ReduceSpec& spec) {
  // Made by torch.distributed._make_nccl_premul_sum() alone, so the type is known.
  const auto* supplement =
      static_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  if (supplement == nullptr) {
    refuse(operation, "PREMUL_SUM has no factor; make the op with "
                      "torch.distributed._make_nccl_premul_sum(factor)");
  }
  spec.factorReal = supplement->double_factor;
  const at::Tensor& factor = supplement->tensor_factor;
  if (!factor.defined()) return;
  if (!factor.device().is_cpu()) {
    refuse(operation, str("the factor of PREMUL_SUM is on ", factor.device().str(),
                          "; pass a CPU tensor or a number"));
  }
  const auto value = factor.item().toComplexDouble();
  spec.factorReal = value.real();
  spec.factorImag = value.imag();
}

}  // namespace

ReduceOp reduceOpOf(const char* operation, const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return ReduceOp::kSum;
    case c10d::ReduceOp::AVG: return ReduceOp::kAvg;
    case c10d::ReduceOp::PRODUCT: return ReduceOp::kProduct;
    case c10d::ReduceOp::MIN: return ReduceOp::kMin;
    case c10d::ReduceOp::MAX: return ReduceOp::kMax;
    case c10d::ReduceOp::BAND: return ReduceOp::kBand;
    case c10d::ReduceOp::BOR: return ReduceOp::kBor;
    case c10d::ReduceOp::BXOR: return ReduceOp::kBxor;
    case c10d::ReduceOp::PREMUL_SUM: return ReduceOp::kPremulSum;
    case c10d::ReduceOp::UNUSED: break;
  }
  refuse(operation, str("reduce op number ", static_cast<int>(op.op_),
                        " is none of SUM, AVG, PREMUL_SUM, PRODUCT, MIN, MAX, BAND, BOR, BXOR"));
}

ReduceSpec reduceSpec(const char* operation, const c10d::ReduceOp& op, const at::Tensor& tensor) {
  ReduceSpec spec;
  spec.op = reduceOpOf(operation, op);
  const DType dtype = dtypeOf(tensor);
  if (isOpaque(dtype)) {
    refuse(operation, str(name(spec.op), " of ", dtypeName(tensor),
                          " is not supported: TACO moves this dtype but does no arithmetic on it"));
  }
  if (const auto why = whyUnsupported(spec.op, dtype)) refuse(operation, *why);
  if (spec.op == ReduceOp::kPremulSum) setFactor(operation, op, spec);
  return spec;
}

}  // namespace taco
