#include "csrc/base/futex.h"

#include <sys/mman.h>

#include <thread>

#include "csrc/base/deadline.h"
#include "tests/csrc/forked_ranks.h"
#include "tests/csrc/ranks.h"

namespace taco {
namespace {

using namespace taco::testing;

constexpr std::chrono::nanoseconds kLong = std::chrono::seconds(30);

TEST_CASE("a counter has reached what is at or below it, across the wrap") {
  SharedCounter counter;
  CHECK(counter.reached(0));
  CHECK_FALSE(counter.reached(1));
  counter.publish(5);
  CHECK(counter.reached(5));
  CHECK(counter.reached(4));
  CHECK_FALSE(counter.reached(6));

  counter.publish(0xFFFFFFFFu);
  CHECK(counter.reached(0xFFFFFFFFu));
  CHECK(counter.reached(0xFFFFFFF0u));
  CHECK_FALSE(counter.reached(0));
  CHECK_FALSE(counter.reached(7));
  counter.publish(2);  // three steps on
  CHECK(counter.reached(0xFFFFFFFFu));
  CHECK(counter.reached(0));
  CHECK(counter.reached(2));
  CHECK_FALSE(counter.reached(3));
}

TEST_CASE("sleep returns at once where the counter is far enough, and after the slice where not") {
  SharedCounter counter;
  counter.publish(3);
  const auto began = Clock::now();
  counter.sleep(3, kLong);
  counter.sleep(1, kLong);
  CHECK(Clock::now() - began < std::chrono::seconds(10));

  const auto slept = Clock::now();
  counter.sleep(4, std::chrono::milliseconds(5));
  CHECK(Clock::now() - slept >= std::chrono::milliseconds(4));
  counter.sleep(4, std::chrono::nanoseconds(0));
  CHECK(counter.sleepers.load() == 0);
}

// Each round the one may only go on when the other has woken it: a lost wake-up would cost 30 s.
void pingPong(SharedCounter& mine, SharedCounter& theirs, uint32_t first, uint32_t rounds,
              bool leads) {
  for (uint32_t i = 1; i <= rounds; ++i) {
    const uint32_t target = first + i;
    if (leads) mine.publish(target);
    const auto began = Clock::now();
    while (!theirs.reached(target)) theirs.sleep(target, kLong);
    if (Clock::now() - began > std::chrono::seconds(20)) {
      throw std::runtime_error(str("a wake-up was lost in round ", i));
    }
    if (!leads) mine.publish(target);
  }
}

TEST_CASE("no wake-up is lost between threads, also across the wrap") {
  SharedCounter counters[2];
  const uint32_t first = 0xFFFFFFFFu - 5000;
  for (SharedCounter& counter : counters) counter.value = first;
  runRanks(
      2, [&](int rank) { pingPong(counters[rank], counters[1 - rank], first, 20000, rank == 0); });
  CHECK(counters[0].value.load() == first + 20000);
  CHECK(counters[0].sleepers.load() == 0);
  CHECK(counters[1].sleepers.load() == 0);
}

TEST_CASE("one publish wakes everybody who sleeps") {
  SharedCounter start;
  SharedCounter arrived[4];
  runRanks(5, [&](int rank) {
    for (uint32_t i = 1; i <= 1000; ++i) {
      if (rank == 4) {
        for (SharedCounter& one : arrived) {
          while (!one.reached(i)) one.sleep(i, kLong);
        }
        start.publish(i);
      } else {
        arrived[rank].publish(i);
        while (!start.reached(i)) start.sleep(i, kLong);
      }
    }
  });
  CHECK(start.value.load() == 1000);
}

TEST_CASE("no wake-up is lost between processes") {
  void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  auto* counters = new (memory) SharedCounter[2];
  {
    ForkedRanks ranks(2, [&](int rank, ForkedRanks::Shared&) {
      pingPong(counters[rank], counters[1 - rank], 0, 5000, rank == 0);
      return std::string("done");
    });
    CHECK(ranks.outcome(0) == "done");
    CHECK(ranks.outcome(1) == "done");
  }
  ::munmap(memory, 4096);
}

TEST_CASE("a sleeper that was killed costs the others nothing but a system call") {
  void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  auto* counter = new (memory) SharedCounter;
  {
    ForkedRanks ranks(1, [&](int, ForkedRanks::Shared&) {
      counter->sleep(1, kLong);
      return std::string("woken");
    });
    REQUIRE(eventually([&] { return counter->sleepers.load() == 1; }));
    ranks.kill(0);
    CHECK(ranks.outcome(0) == "killed by signal 9");
  }
  counter->publish(1);
  CHECK(counter->reached(1));
  ::munmap(memory, 4096);
}

}  // namespace
}  // namespace taco
