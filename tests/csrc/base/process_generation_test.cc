#include "csrc/base/process_generation.h"

#include "csrc/base/format.h"
#include "tests/csrc/forked_ranks.h"
#include "tests/csrc/ranks.h"

namespace taco {
namespace {

using namespace taco::testing;

TEST_CASE("a process keeps its generation, in all threads") {
  const uint64_t mine = processGeneration();
  runRanks(4, [&](int) { expect(processGeneration() == mine, "another generation"); });
  CHECK(processGeneration() == mine);
}

TEST_CASE("a forked child and its child have other generations than their parents") {
  const uint64_t mine = processGeneration();
  ForkedRanks children(2, [&](int, ForkedRanks::Shared&) -> std::string {
    const uint64_t child = processGeneration();
    if (child == mine || child != processGeneration()) return "the child's";
    ForkedRanks grandchild(1, [&](int, ForkedRanks::Shared&) -> std::string {
      const uint64_t grand = processGeneration();
      return grand == child || grand == mine ? "the same" : "another";
    });
    return grandchild.outcome(0);
  });
  CHECK(children.outcome(0) == "another");
  CHECK(children.outcome(1) == "another");
  CHECK(processGeneration() == mine);
}

}  // namespace
}  // namespace taco
