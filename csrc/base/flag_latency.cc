#include "csrc/base/flag_latency.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "csrc/base/error.h"
#include "csrc/base/format.h"

namespace taco {
namespace {

constexpr int kBatches = 51;
constexpr int kRoundsPerBatch = 100;
// Who was taken off its core meanwhile is waited for without keeping it from coming back.
constexpr int kSpinsBeforeYield = 10'000;

struct alignas(128) Flag {
  std::atomic<uint32_t> value{0};
};

int bindThisThread(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(cpu), &one);
  return ::pthread_setaffinity_np(::pthread_self(), sizeof one, &one);
}

void await(const Flag& flag, uint32_t value) {
  for (int spins = 0; flag.value.load(std::memory_order_acquire) != value; ++spins) {
    if (spins >= kSpinsBeforeYield) std::this_thread::yield();
  }
}

// One side; nanoseconds of each batch's rounds.
std::vector<double> handToAndFro(Flag& mine, const Flag& other, bool first) {
  std::vector<double> batches;
  uint32_t round = 0;
  for (int batch = 0; batch < kBatches; ++batch) {
    const auto began = std::chrono::steady_clock::now();
    for (int i = 0; i < kRoundsPerBatch; ++i) {
      ++round;
      if (!first) await(other, round);
      mine.value.store(round, std::memory_order_release);
      if (first) await(other, round);
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - began;
    batches.push_back(took.count());
  }
  return batches;
}

}  // namespace

double flagLatencyNs(int firstCpu, int secondCpu) {
  Flag ping, pong;
  std::vector<double> batches;
  std::atomic<int> refused{0};
  std::atomic<int> bound{0};
  const auto side = [&](int cpu, bool first) {
    if (const int error = bindThisThread(cpu)) refused = error;
    ++bound;
    while (bound != 2) std::this_thread::yield();
    if (refused != 0) return;
    auto own = handToAndFro(first ? ping : pong, first ? pong : ping, first);
    if (first) batches = std::move(own);
  };
  std::thread one([&] { side(firstCpu, true); });
  std::thread two([&] { side(secondCpu, false); });
  one.join();
  two.join();
  if (refused != 0) {
    throw systemError(
        str("measuring the flag latency: binding a thread to CPU ", firstCpu, " or ", secondCpu),
        refused);
  }
  const auto middle = batches.begin() + kBatches / 2;
  std::nth_element(batches.begin(), middle, batches.end());
  return *middle / (2.0 * kRoundsPerBatch);
}

}  // namespace taco
