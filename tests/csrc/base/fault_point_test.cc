#include "csrc/base/fault_point.h"

#include <stdexcept>

#include "csrc/base/error.h"
#include "tests/csrc/forked_ranks.h"

namespace taco {

TEST_CASE("fault point: nothing happens unless one is set, at its name, at its turn, once") {
  faultPoint("here");
  setFaultPoint("here", 2, FaultAction::kThrow);
  faultPoint("elsewhere");
  faultPoint("here");
  CHECK_THROWS_AS(faultPoint("here"), std::runtime_error);
  faultPoint("here");
  setFaultPoint("here", 1, FaultAction::kThrow);
  setFaultPoint("", 1, FaultAction::kThrow);
  faultPoint("here");
}

TEST_CASE("fault point: the ways to go") {
  const auto dying = [](const char* action) {
    testing::ForkedRanks one(1, [action](int, testing::ForkedRanks::Shared&) {
      setFaultPoint("here", 1, faultActionOf(action));
      faultPoint("here");
      return std::string("survived");
    });
    return one.outcome(0);
  };
  CHECK(dying("kill") == "killed by signal 9");
  CHECK(dying("crash") == "killed by signal 11");
  CHECK(dying("exit") == "");
  CHECK(dying("throw") == "error: the fault point 'here' was reached");
  CHECK_THROWS_AS(faultActionOf("explode"), Error);
}

}  // namespace taco
