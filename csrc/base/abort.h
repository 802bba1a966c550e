#pragma once

#include <atomic>
#include <mutex>
#include <optional>

#include "csrc/base/error.h"

namespace taco {

// "This group is finished, and here is why." Shared by everything that belongs to one group; the
// first reason stays. Every wait looks at it, so that one failure ends all the others.
class AbortSignal {
 public:
  // Returns true if this was the first reason.
  bool raise(const Error& why) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (why_) return false;
    why_ = why;
    raised_.store(true, std::memory_order_release);
    return true;
  }

  bool raised() const { return raised_.load(std::memory_order_acquire); }

  std::optional<Error> reason() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return why_;
  }

  void throwIfRaised() const {
    if (raised()) throw *reason();
  }

 private:
  std::atomic<bool> raised_{false};  // false -> true once; set after why_ is
  mutable std::mutex mutex_;         // guards why_
  std::optional<Error> why_;
};

}  // namespace taco
