#include "csrc/base/deadline.h"

#include <thread>

#include "tests/csrc/catch.h"

namespace taco {
namespace {

using std::chrono::nanoseconds;

TEST_CASE("no timeout, or an absurdly long one, is never") {
  for (const Millis timeout : {Millis(0), Millis(-1), Millis::min(), Millis::max(),
                               Millis(std::chrono::hours(24 * 3651))}) {
    const Deadline deadline = Deadline::after(timeout);
    CHECK(deadline.isNever());
    CHECK_FALSE(deadline.expired());
    CHECK(deadline.remaining(nanoseconds(77)) == nanoseconds(77));
  }
  CHECK(Deadline::never().isNever());
}

TEST_CASE("what remains is cut to the slice and never negative") {
  const Deadline far = Deadline::after(std::chrono::hours(24 * 3650));
  CHECK_FALSE(far.isNever());
  CHECK_FALSE(far.expired());
  CHECK(far.remaining(Millis(20)) == Millis(20));
  CHECK(far.remaining(std::chrono::hours(24 * 36500)) > std::chrono::hours(24 * 3649));

  const Deadline soon = Deadline::after(Millis(1));
  while (!soon.expired()) std::this_thread::yield();
  CHECK(soon.remaining(Millis(20)) == nanoseconds(0));
  CHECK(soon.budget() == Millis(1));

  const Deadline second = Deadline::after(Millis(1000));
  CHECK(second.remaining(std::chrono::hours(1)) <= Millis(1000));
}

}  // namespace
}  // namespace taco
