#include "csrc/topk/scatter_add.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "csrc/base/error.h"
#include "csrc/base/format.h"
#include "csrc/topk/float_mode.h"
#include "csrc/topk/scatter_kernels.h"

namespace taco {
namespace {

using topk_internal::Cursor;
using topk_internal::inspect;
using topk_internal::Inspection;
using topk_internal::scatter;
using topk_internal::Scatter;

void checkDense(Buffer dense, PayloadLayout layout, int64_t divisor) {
  if (dense.dtype != DType::kFloat32 && dense.dtype != DType::kFloat16 &&
      dense.dtype != DType::kBFloat16) {
    throw Error(ErrorCode::kUnsupported,
                str("the dense buffer is ", name(dense.dtype),
                    ": TopK adds up in float32, float16 and bfloat16; reduce it densely"));
  }
  if (layout.k > dense.count) {
    throw Error(ErrorCode::kInvalidArgument,
                str("k is ", layout.k, ", but the dense buffer has only ", dense.count,
                    " elements: take it from topkCount()"));
  }
  if (divisor < 1) {
    throw Error(ErrorCode::kInvalidArgument, str("the divisor of the TopK sum is ", divisor,
                                                 ": it is the number of ranks and so at least 1"));
  }
}

// What exactly is wrong with indices of which something is.
[[noreturn]] void refuse(size_t payload, const uint8_t* indices, PayloadLayout layout,
                         size_t count) {
  const auto index = [&](size_t j) {
    uint32_t value;
    std::memcpy(&value, indices + j * sizeof value, sizeof value);
    return value;
  };
  size_t j = 1;
  while (j < layout.k && index(j - 1) < index(j)) ++j;
  const std::string what = j < layout.k
                               ? str("index ", j, " is ", index(j), " after ", index(j - 1))
                               : str("its last index is ", index(layout.k - 1));
  throw Error(ErrorCode::kMismatch,
              str("TopK payload ", payload, " is not one for ", count, " elements: ", what,
                  ", but indices must ascend and stay below that; all ranks must select from the "
                  "same number of elements with the same k"));
}

bool inspectAll(const Scatter& work) {
  bool finite = true;
  const PayloadLayout layout = work.layout;
  for (size_t p = 0; p < work.cursors.size(); ++p) {
    const Cursor& payload = work.cursors[p];
    const Inspection seen = inspect(payload, layout);
    uint32_t last;
    std::memcpy(&last, payload.indices + (layout.k - 1) * sizeof last, sizeof last);
    if (!seen.ascends || last >= work.dense.count) {
      refuse(p, payload.indices, layout, work.dense.count);
    }
    finite &= seen.finite;
  }
  return finite;
}

}  // namespace

bool scatterAdd(std::span<const void* const> payloads, PayloadLayout layout, Buffer dense,
                int64_t divisor) {
  checkDense(dense, layout, divisor);
  Scatter work{{}, layout, dense, static_cast<float>(divisor)};
  for (const void* payload : payloads) {
    const auto* const bytes = static_cast<const uint8_t*>(payload);
    work.cursors.push_back({bytes, bytes + layout.valueOffset()});
  }
  const IeeeArithmetic ieee;
  const bool finite = layout.k == 0 || inspectAll(work);
  scatter(work);
  return finite;
}

}  // namespace taco
