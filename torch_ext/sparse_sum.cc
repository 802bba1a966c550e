#include "torch_ext/sparse_sum.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <vector>

#include "csrc/base/error.h"
#include "csrc/base/format.h"
#include "torch_ext/tensors.h"

namespace taco {
namespace {

constexpr int64_t kMaxDims = 16;

// What every rank tells the others first. Plain int64, so that it can be gathered as it is.
struct Outline {
  int64_t sparseDims = 0;
  int64_t denseDims = 0;
  int64_t entries = 0;
  int64_t sizes[kMaxDims] = {};

  bool sameShape(const Outline& other) const {
    return sparseDims == other.sparseDims && denseDims == other.denseDims &&
           std::equal(std::begin(sizes), std::end(sizes), std::begin(other.sizes));
  }
  std::string describe() const {
    std::string text = "[";
    for (int64_t d = 0; d < sparseDims + denseDims; ++d) {
      text += str(d > 0 ? ", " : "", sizes[d]);
    }
    return text + str("] with ", sparseDims, " sparse dimensions");
  }
};
constexpr size_t kOutlineWords = sizeof(Outline) / sizeof(int64_t);

std::vector<Outline> gatherOutlines(Collectives& collectives, const at::Tensor& tensor) {
  Outline own;
  own.sparseDims = tensor.sparse_dim();
  own.denseDims = tensor.dense_dim();
  own.entries = tensor._nnz();
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), std::begin(own.sizes));
  std::vector<Outline> all(static_cast<size_t>(collectives.size()));
  std::vector<Buffer> slots;
  for (Outline& one : all) slots.push_back({&one, kOutlineWords, DType::kInt64});
  collectives.allGather({&own, kOutlineWords, DType::kInt64}, slots);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].sameShape(own)) continue;
    throw Error(ErrorCode::kMismatch,
                str("sparse tensors of different shapes: rank ", collectives.rank(), " has ",
                    own.describe(), ", rank ", rank, " has ", all[rank].describe()),
                static_cast<int>(rank));
  }
  return all;
}

// The rows of all ranks: `own` is [entries of this rank, ...]; one tensor a rank comes back.
std::vector<at::Tensor> gatherRows(Collectives& collectives, const at::Tensor& own,
                                   const std::vector<Outline>& outlines) {
  std::vector<at::Tensor> all;
  std::vector<Buffer> slots;
  for (const Outline& outline : outlines) {
    std::vector<int64_t> sizes = own.sizes().vec();
    sizes[0] = outline.entries;
    all.push_back(at::empty(sizes, own.options()));
    slots.push_back({all.back().data_ptr(), static_cast<size_t>(all.back().numel()),
                     dtypeOf(own)});
  }
  collectives.allGather(
      {own.const_data_ptr(), static_cast<size_t>(own.numel()), dtypeOf(own)}, slots);
  return all;
}

bool isHalf(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
}

}  // namespace

void sparseSum(Collectives& collectives, at::Tensor tensor, const ReduceSpec& spec) {
  at::AutoDispatchBelowADInplaceOrView noAutograd;
  const at::Tensor own = tensor.coalesce();
  const std::vector<Outline> outlines = gatherOutlines(collectives, own);
  // Entries first, so that a rank's share is one run of memory.
  const auto indices = gatherRows(collectives, own._indices().t().contiguous(), outlines);
  const auto values = gatherRows(collectives, own._values().contiguous(), outlines);

  at::Tensor sum;
  for (size_t rank = 0; rank < outlines.size(); ++rank) {
    // Half precision is added up in float32 and rounded once.
    const at::Tensor theirs = isHalf(own) ? values[rank].to(at::kFloat) : values[rank];
    at::Tensor one = at::_sparse_coo_tensor_unsafe(
        indices[rank].t(), theirs, own.sizes(),
        theirs.options().layout(c10::kSparse), /*is_coalesced=*/true);
    sum = rank == 0 ? one : sum.add(one);
  }
  sum = sum.coalesce();
  if (spec.op == ReduceOp::kAvg) {
    const bool integers = !sum.is_floating_point() && !sum.is_complex();
    at::Tensor mean = integers ? sum._values().div(collectives.size(), "trunc")
                               : sum._values().div(collectives.size());
    sum = at::_sparse_coo_tensor_unsafe(sum._indices(), mean.to(sum.scalar_type()), sum.sizes(),
                                        sum.options(), /*is_coalesced=*/true);
  }
  tensor.copy_(sum.to(tensor.scalar_type()));
}

}  // namespace taco
