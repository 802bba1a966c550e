#pragma once

#include <sched.h>

#include <chrono>

#include "csrc/base/deadline.h"

namespace taco {

// How a rank waits for another one. Measured (docs/performance.md): with a core to itself it spins
// briefly, since a sleep and a wake-up cost 5-10 us; when ranks share cores, spinning keeps the
// very rank from running that is waited for, so it yields a few times and sleeps.
struct WaitPolicy {
  std::chrono::nanoseconds spin{0};
  int yields = 0;

  static WaitPolicy coresToSpare() { return {std::chrono::microseconds(20), 0}; }
  static WaitPolicy oversubscribed() { return {std::chrono::nanoseconds(0), 30}; }
};

inline void pauseCpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// How long one sleep may last before deadline, abort and the peer's life are looked at again; the
// first one is short, since whoever has just done what is waited for may not have seen the sleeper.
constexpr std::chrono::milliseconds kSleepSlice{20};
constexpr std::chrono::microseconds kFirstSleep{100};

// The one waiting primitive: returns when ready() is true. In between it spins, yields, and then
// alternates check() - which throws if waiting further makes no sense - with sleep(slice), which
// blocks until something may have changed or the slice is over.
template <typename Ready, typename Check, typename Sleep>
void waitUntil(const WaitPolicy& policy, Ready ready, Check check, Sleep sleep) {
  if (ready()) return;
  if (policy.spin.count() > 0) {
    const auto end = Clock::now() + policy.spin;
    do {
      for (int i = 0; i < 16; ++i) {
        if (ready()) return;
        pauseCpu();
      }
    } while (Clock::now() < end);
  }
  for (int i = 0; i < policy.yields; ++i) {
    ::sched_yield();
    if (ready()) return;
  }
  std::chrono::nanoseconds slice = kFirstSleep;
  while (!ready()) {
    check();
    sleep(slice);
    slice = kSleepSlice;
  }
}

}  // namespace taco
