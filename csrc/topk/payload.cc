#include "csrc/topk/payload.h"

#include <algorithm>

#include "csrc/base/error.h"
#include "csrc/base/format.h"

namespace taco {

size_t topkCount(size_t count, double ratio) {
  if (!(ratio > 0 && ratio <= 1)) {  // a NaN is neither
    throw Error(
        ErrorCode::kInvalidArgument,
        str("the TopK ratio is ", ratio,
            ": it is the share of elements to send, so pass a number above 0 and at most 1"));
  }
  if (count == 0) return 0;
  const auto share = static_cast<size_t>(ratio * static_cast<double>(count));
  return std::clamp<size_t>(share, 1, count);
}

}  // namespace taco
