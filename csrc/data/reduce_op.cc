#include "csrc/data/reduce_op.h"

#include <cstddef>

#include "csrc/base/error.h"

namespace taco {
namespace {

constexpr const char* kNames[kNumReduceOps] = {"SUM", "AVG",  "PREMUL_SUM", "PRODUCT", "MIN",
                                               "MAX", "BAND", "BOR",        "BXOR"};

// The clause after "<op> has no meaning for <dtype>: ", or nullptr where it has one.
const char* reasonAgainst(ReduceOp op, DType dtype) {
  if (isOpaque(dtype)) return "such elements can be moved but not computed with";
  const bool isBool = dtype == DType::kBool;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kProduct:
      return nullptr;
    case ReduceOp::kAvg:
      return isBool ? "truth values have no mean" : nullptr;
    case ReduceOp::kPremulSum:
      if (isFloatingPoint(dtype) || isComplex(dtype)) return nullptr;
      return "the factor is a floating point or complex number";
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return isComplex(dtype) ? "complex numbers are not ordered" : nullptr;
    case ReduceOp::kBand:
    case ReduceOp::kBor:
    case ReduceOp::kBxor:
      if (isInteger(dtype) || isBool) return nullptr;
      return "bitwise operations need integers or bool";
  }
  return "the operation is unknown";
}

}  // namespace

const char* name(ReduceOp op) {
  const auto index = static_cast<size_t>(op);
  if (index >= kNumReduceOps) {
    throw Error(ErrorCode::kInvalidArgument, "reduction code " + std::to_string(index) +
                                                 " is unknown: the last one is " +
                                                 std::to_string(kNumReduceOps - 1) +
                                                 "; do all ranks run the same version of TACO?");
  }
  return kNames[index];
}

std::optional<std::string> whyUnsupported(ReduceOp op, DType dtype) {
  const char* reason = reasonAgainst(op, dtype);
  if (reason == nullptr) return std::nullopt;
  return std::string(name(op)) + " has no meaning for " + name(dtype) + ": " + reason;
}

}  // namespace taco
