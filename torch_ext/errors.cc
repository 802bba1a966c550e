#include "torch_ext/errors.h"

#include <c10/util/Exception.h>

#include "csrc/base/format.h"

namespace taco {

std::exception_ptr torchException(const std::string& what, const Error& error) {
  if (error.isCallersFault()) {
    return std::make_exception_ptr(c10::ValueError(str(what, ": ", error.what()), nullptr));
  }
  // torch's suite and users' scripts look for " timeout " with the spaces.
  const char* kind = error.code() == ErrorCode::kTimeout ? " ran into a timeout : " : " failed: ";
  return std::make_exception_ptr(c10::DistBackendError(str(what, kind, error.what()), nullptr));
}

Error currentError() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const c10::Error& error) {
    return Error(ErrorCode::kSystem, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return Error(ErrorCode::kSystem, error.what());
  } catch (...) {
    return Error(ErrorCode::kSystem, "an exception of an unknown type");
  }
}

}  // namespace taco
