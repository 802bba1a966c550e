#include "csrc/base/flag_latency.h"

#include <sched.h>

#include <vector>

#include "csrc/base/error.h"
#include "tests/csrc/catch.h"

namespace taco {
namespace {

std::vector<int> usableCpus() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  REQUIRE(::sched_getaffinity(0, sizeof mask, &mask) == 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<size_t>(cpu), &mask)) cpus.push_back(cpu);
  }
  return cpus;
}

TEST_CASE("a flag takes more than a nanosecond, and the caller stays where it may run") {
  const std::vector<int> before = usableCpus();
  CHECK(flagLatencyNs(before.front(), before.back()) > 1.0);
  CHECK(usableCpus() == before);
}

TEST_CASE("a CPU that is not there is a system error that names it") {
  const int first = usableCpus().front();
  try {
    flagLatencyNs(first, CPU_SETSIZE - 1);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kSystem);
    CHECK(std::string(error.what()).find("CPU") != std::string::npos);
  }
}

}  // namespace
}  // namespace taco
