#include "csrc/base/wait.h"

#include <stdexcept>

#include "tests/csrc/catch.h"

namespace taco {
namespace {

struct Counts {
  int ready = 0;
  int check = 0;
  int sleep = 0;
};

// Ready at the `atCall`-th question.
Counts waitFor(const WaitPolicy& policy, int atCall) {
  Counts counts;
  waitUntil(
      policy, [&] { return ++counts.ready >= atCall; }, [&] { ++counts.check; },
      [&](std::chrono::nanoseconds slice) {
        // The first one is short.
        CHECK(slice == (counts.sleep == 0 ? std::chrono::nanoseconds(kFirstSleep)
                                          : std::chrono::nanoseconds(kSleepSlice)));
        ++counts.sleep;
      });
  return counts;
}

TEST_CASE("what is ready is not waited for, nor checked") {
  for (const WaitPolicy& policy : {WaitPolicy::coresToSpare(), WaitPolicy::oversubscribed()}) {
    const Counts counts = waitFor(policy, 1);
    CHECK(counts.ready == 1);
    CHECK(counts.check == 0);
    CHECK(counts.sleep == 0);
  }
}

TEST_CASE("spinning and yielding come before sleeping, and checks before every sleep") {
  CHECK(waitFor({std::chrono::seconds(10), 0}, 100).sleep == 0);
  CHECK(waitFor({std::chrono::nanoseconds(0), 30}, 31).sleep == 0);

  const Counts counts = waitFor({std::chrono::nanoseconds(0), 3}, 10);
  CHECK(counts.ready ==
        10);  // 1 at first, 3 after a yield, and one before each sleep and at the end
  CHECK(counts.sleep == 5);
  CHECK(counts.check == counts.sleep);
  CHECK(waitFor({std::chrono::microseconds(1), 0}, 100000).sleep > 0);
}

TEST_CASE("what the check throws ends the wait") {
  int sleeps = 0;
  auto wait = [&] {
    waitUntil(
        WaitPolicy{}, [] { return false; },
        [&] {
          if (sleeps == 2) throw std::runtime_error("enough");
        },
        [&](std::chrono::nanoseconds) { ++sleeps; });
  };
  CHECK_THROWS_WITH(wait(), "enough");
  CHECK(sleeps == 2);
}

}  // namespace
}  // namespace taco
