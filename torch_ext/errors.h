// taco::Error at the border: as the exception of torch that Python users know.
//   the caller's fault (bad argument, op without a meaning, bad setting)  -> ValueError
//   communication failed (timeout, mismatch, dead peer, abort, system)
//                                                    -> torch.distributed.DistBackendError
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "csrc/base/error.h"

namespace taco {

// `what`: whose error it is, "taco:all_reduce".
std::exception_ptr torchException(const std::string& what, const Error& error);

// Whatever is being caught, as an Error of ours: torch's own errors and std::bad_alloc keep their
// text. For use in a catch block.
Error currentError();

// Runs `call`; an Error becomes torch's.
template <typename Call>
auto translated(const std::string& what, Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (const Error& error) {
    std::rethrow_exception(torchException(what, error));
  }
}

}  // namespace taco
