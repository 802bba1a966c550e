#pragma once

#include <stdexcept>
#include <string>

namespace taco {

// Why an operation failed. The first group is the caller's to mend, the second is the world's.
enum class ErrorCode {
  kInvalidArgument,  // a bad argument of one call; nothing was sent, the group stays usable
  kUnsupported,      // an operation without a meaning (BXOR of floats); nothing was sent
  kInvalidSettings,  // a malformed, unknown or disagreeing environment variable

  kMismatch,   // ranks called different operations, or the same one with different sizes
  kTimeout,    // a deadline passed
  kPeerFailed, // another rank died or reported a failure
  kAborted,    // this rank was told to stop (abort(), shutdown())
  kSystem,     // the operating system refused something
};

const char* name(ErrorCode code);

// The one exception of csrc/. Messages are whole sentences: what happened, which rank, and where
// it helps what to do. A lane turns it into a failed Ticket; torch_ext turns it into the c10 error
// of the same kind.
class Error : public std::runtime_error {
 public:
  // `rank`: the rank (in the group) at fault, -1 where nobody in particular is.
  Error(ErrorCode code, const std::string& message, int rank = -1)
      : std::runtime_error(message), code_(code), rank_(rank) {}

  ErrorCode code() const { return code_; }
  int rank() const { return rank_; }

  // True for errors that leave the group usable, because nothing had been sent.
  bool isCallersFault() const {
    return code_ == ErrorCode::kInvalidArgument || code_ == ErrorCode::kUnsupported ||
           code_ == ErrorCode::kInvalidSettings;
  }

 private:
  ErrorCode code_;
  int rank_;
};

// "what: strerror(errno)" as a kSystem error.
Error systemError(const std::string& what, int errnoValue);

}  // namespace taco
