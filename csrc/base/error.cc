#include "csrc/base/error.h"

#include <system_error>

namespace taco {

const char* name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid argument";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kInvalidSettings: return "invalid settings";
    case ErrorCode::kMismatch: return "mismatch between ranks";
    case ErrorCode::kTimeout: return "timeout";
    case ErrorCode::kPeerFailed: return "peer failed";
    case ErrorCode::kAborted: return "aborted";
    case ErrorCode::kSystem: return "system error";
  }
  return "unknown error";
}

Error systemError(const std::string& what, int errnoValue) {
  return Error(ErrorCode::kSystem, what + ": " + std::generic_category().message(errnoValue));
}

}  // namespace taco
