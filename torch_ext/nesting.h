// Callbacks that communicate.
//
// A callback on an operation's future may call further operations of the same group and wait for
// them (PowerSGD's hook does). Such a callback runs while the group's ordered lane is still its
// operation's: what it calls runs at once, on this thread, before anything queued. So it cannot
// deadlock, and as every rank nests alike, the order of operations is the same on all of them,
// which a second thread could not promise.
#pragma once

#include <optional>

#include "csrc/base/error.h"

namespace taco {

class Collectives;

struct Nesting {
  const void* group = nullptr;         // whose lane this thread runs
  Collectives* collectives = nullptr;  // to run nested operations on
  std::optional<Error> failure;        // of a nested operation: ends the group like any other
};

// Makes `inner` the nesting of this thread until the end of the scope.
class NestingScope {
 public:
  explicit NestingScope(Nesting* inner) : outer_(current_) { current_ = inner; }
  ~NestingScope() { current_ = outer_; }
  NestingScope(const NestingScope&) = delete;

  // The nesting of this thread if it is that of `group`; else null.
  static Nesting* of(const void* group) {
    return current_ != nullptr && current_->group == group ? current_ : nullptr;
  }

 private:
  static inline thread_local Nesting* current_ = nullptr;
  Nesting* outer_;
};

}  // namespace taco
