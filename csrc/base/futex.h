#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace taco {

// A 32-bit counter in memory that several processes share, which only grows (and wraps), with a
// count of who sleeps on it, so that publishing costs no system call while everyone is awake.
// `value`: written by one rank, with release; read by all, with acquire.
// `sleepers`: incremented before, decremented after a futex sleep.
struct alignas(8) SharedCounter {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};

  // Has it reached `target`? Correct across the wrap as long as ranks are < 2^31 steps apart.
  bool reached(uint32_t target) const {
    return static_cast<int32_t>(value.load(std::memory_order_acquire) - target) >= 0;
  }

  // Sets it and wakes whoever is seen to sleep. There is no barrier between the two: it would wait
  // until the line has come from the readers' caches, 50-250 ns, as much as a small all-reduce
  // takes. So a rank that goes to sleep within that time may be overlooked; that is why a wait's
  // first sleep is a short one (base/wait.h), after which the value is surely visible.
  void publish(uint32_t newValue) {
    value.store(newValue, std::memory_order_release);
    if (sleepers.load(std::memory_order_relaxed) != 0) wakeAll();
  }

  void wakeAll();
  // Sleeps at most `atMost`, and only while the counter has not reached `target`.
  void sleep(uint32_t target, std::chrono::nanoseconds atMost);
};

}  // namespace taco
