#include "csrc/data/dtype.h"

#include <string>

#include "csrc/base/error.h"

namespace taco {
namespace {

enum class Kind : uint8_t { kFloat, kComplex, kInteger, kBool, kOpaque };

struct Facts {
  const char* name;
  size_t bytes;
  Kind kind;
};

// In the order of the enumerators.
constexpr Facts kFacts[kNumDTypes] = {
    {"float32", 4, Kind::kFloat},
    {"float64", 8, Kind::kFloat},
    {"float16", 2, Kind::kFloat},
    {"bfloat16", 2, Kind::kFloat},
    {"complex64", 8, Kind::kComplex},
    {"complex128", 16, Kind::kComplex},
    {"int8", 1, Kind::kInteger},
    {"int16", 2, Kind::kInteger},
    {"int32", 4, Kind::kInteger},
    {"int64", 8, Kind::kInteger},
    {"uint8", 1, Kind::kInteger},
    {"uint16", 2, Kind::kInteger},
    {"uint32", 4, Kind::kInteger},
    {"uint64", 8, Kind::kInteger},
    {"bool", 1, Kind::kBool},
    {"opaque 1-byte", 1, Kind::kOpaque},
    {"opaque 2-byte", 2, Kind::kOpaque},
    {"opaque 4-byte", 4, Kind::kOpaque},
    {"opaque 8-byte", 8, Kind::kOpaque},
    {"opaque 16-byte", 16, Kind::kOpaque},
};

// A dtype can arrive as a byte from a peer's message, so an unknown value is an error to report and
// not a programmer's mistake.
const Facts& factsOf(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  if (index >= kNumDTypes) {
    throw Error(ErrorCode::kInvalidArgument, "dtype code " + std::to_string(index) +
                                                 " is unknown: the last one is " +
                                                 std::to_string(kNumDTypes - 1) +
                                                 "; do all ranks run the same version of TACO?");
  }
  return kFacts[index];
}

}  // namespace

size_t elementBytes(DType dtype) { return factsOf(dtype).bytes; }
const char* name(DType dtype) { return factsOf(dtype).name; }
bool isFloatingPoint(DType dtype) { return factsOf(dtype).kind == Kind::kFloat; }
bool isComplex(DType dtype) { return factsOf(dtype).kind == Kind::kComplex; }
bool isInteger(DType dtype) { return factsOf(dtype).kind == Kind::kInteger; }
bool isOpaque(DType dtype) { return factsOf(dtype).kind == Kind::kOpaque; }

}  // namespace taco
