#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "csrc/base/deadline.h"
#include "csrc/base/error.h"

namespace taco {

// One operation in flight: pending, then done or failed, once. Shared by who issued it and by the
// lane that runs it; either may go first.
class Ticket {
 public:
  using Callback = std::function<void(const Ticket&)>;

  bool isDone() const;

  // True once done (or failed); false if the deadline passed first. Does not throw the error.
  bool wait(const Deadline& deadline) const;

  // Why it failed; empty while pending and after success.
  std::optional<Error> error() const;

  // Runs `callback` when done, on the finishing thread, or at once if it is done already. No lock
  // of ours is held meanwhile: callbacks may take the GIL or wait for other tickets.
  void onDone(Callback callback);

  // The rank a receive from any source was matched with; -1 before and for everything else.
  int sourceRank() const;
  void setSourceRank(int rank);

  // For the lane. The first call counts; later ones are ignored (abort may race with completion).
  void complete();
  void fail(const Error& why);

 private:
  void finish(std::optional<Error> why);

  mutable std::mutex mutex_;  // guards all below
  mutable std::condition_variable finished_;
  bool done_ = false;
  int sourceRank_ = -1;
  std::optional<Error> error_;
  std::vector<Callback> callbacks_;
};

using TicketPtr = std::shared_ptr<Ticket>;

}  // namespace taco
