#include "csrc/base/process_id.h"

#include <set>

#include "tests/csrc/forked_ranks.h"
#include "tests/csrc/ranks.h"

namespace taco {
namespace {

using namespace taco::testing;

TEST_CASE("a process keeps its id, in all threads") {
  const std::string id = processId();
  CHECK(id.size() == 32);
  CHECK(id.find_first_not_of("0123456789abcdef") == std::string::npos);
  runRanks(4, [&](int) { expect(processId() == id, "another id"); });
}

TEST_CASE("a forked child has an id of its own") {
  const std::string id = processId();
  ForkedRanks ranks(2, [](int, ForkedRanks::Shared&) { return processId() + processId(); });
  const std::string first = ranks.outcome(0);
  const std::string second = ranks.outcome(1);
  REQUIRE(first.size() == 64);
  CHECK(first.substr(0, 32) == first.substr(32));
  CHECK(std::set<std::string>{id, first.substr(32), second.substr(32)}.size() == 3);
  CHECK(processId() == id);
}

TEST_CASE("random text has the length asked for and does not repeat") {
  CHECK(randomHex(0).empty());
  CHECK(randomHex(1).size() == 2);
  CHECK(randomHex(300).size() == 600);  // more than getrandom gives at once
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(randomHex(16));
  CHECK(seen.size() == 1000);
}

}  // namespace
}  // namespace taco
