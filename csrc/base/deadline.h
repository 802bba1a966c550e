#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>

namespace taco {

using Clock = std::chrono::steady_clock;
using Millis = std::chrono::milliseconds;

// The clock's time as of its last tick: up to kCoarseTick ago, for a fifth of the cost (5 ns).
inline Clock::time_point coarseNow() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return Clock::time_point(std::chrono::seconds(now.tv_sec) +
                           std::chrono::nanoseconds(now.tv_nsec));
}
constexpr Millis kCoarseTick{10};  // of the slowest kernels (CONFIG_HZ=100)

// A point in time after which a wait gives up. Made once per operation and passed down, so that
// the steps of an operation share one budget.
class Deadline {
 public:
  static Deadline never() { return Deadline(Clock::time_point::max(), Millis(0)); }

  // `timeout` <= 0 means never, as c10d's kNoTimeout does.
  static Deadline after(Millis timeout) { return after(timeout, Clock::now()); }
  static Deadline after(Millis timeout, Clock::time_point now) {
    // Longer than ten years is never: adding it to `now` could overflow.
    if (timeout.count() <= 0 || timeout > std::chrono::hours(24 * 3650)) return never();
    return Deadline(now + timeout, timeout);
  }

  Clock::time_point at() const { return at_; }
  bool isNever() const { return at_ == Clock::time_point::max(); }
  bool expired() const { return !isNever() && Clock::now() >= at_; }

  // How long until the deadline, at least 0 and at most `slice`: what one bounded sleep may take.
  std::chrono::nanoseconds remaining(std::chrono::nanoseconds slice) const {
    if (isNever()) return slice;
    return std::clamp<std::chrono::nanoseconds>(at_ - Clock::now(), std::chrono::nanoseconds(0),
                                                slice);
  }

  // The whole budget, for messages ("did not arrive within 30000 ms").
  Millis budget() const { return budget_; }

 private:
  Deadline(Clock::time_point at, Millis budget) : at_(at), budget_(budget) {}

  Clock::time_point at_;
  Millis budget_;
};

}  // namespace taco
