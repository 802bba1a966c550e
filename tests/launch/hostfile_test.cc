#include "launch/hostfile.h"

#include "tests/launch/launching.h"

namespace taco {
namespace {

using namespace taco::testing;

struct Parsed {
  std::vector<HostSlots> hosts;
  std::vector<std::string> warnings;
};

Parsed parse(const std::string& text) {
  Parsed result;
  result.hosts = parseHostfile(text, "the hostfile 'h' (X)", result.warnings);
  return result;
}

TEST_CASE("the TI guide's hostfile") {
  const auto file = parse(kTiHostfile.at("/etc/mpi/hostfile"));
  CHECK(file.hosts ==
        std::vector<HostSlots>{{"train-960258573108964736-7an39bddmfpc-launcher", 1},
                               {"train-960258573108964736-7an39bddmfpc-worker-0", 1}});
  CHECK(file.warnings.empty());
}

TEST_CASE("comments, blank lines, CRLF, 8 and 4 slots mixed, every spelling of slots") {
  const auto file = parse(
      "# the cluster\r\n"
      "\r\n"
      "  gpu1 slots=8   # rack 1\r\n"
      "gpu2\tslots = 4 max_slots=8\r\n"
      "   \t \n"
      "gpu3:4\n"
      "#gpu4 slots=8\n"
      "root@gpu5 slots=2 max-slots=4\n"
      "[fd00::1]:3\n"
      "gpu6");
  CHECK(file.hosts ==
        std::vector<HostSlots>{
            {"gpu1", 8}, {"gpu2", 4}, {"gpu3", 4}, {"gpu5", 2}, {"fd00::1", 3}, {"gpu6", 1}});
  CHECK(file.warnings.empty());
}

TEST_CASE("a host on several lines has the sum of its slots, as mpirun counts") {
  CHECK(parse("a slots=2\nb\na\n").hosts == std::vector<HostSlots>{{"a", 3}, {"b", 1}});
}

TEST_CASE("what is not understood is passed over with a warning that has the line") {
  const auto file = parse("a slots=2 sockets=1\n");
  CHECK(file.hosts == std::vector<HostSlots>{{"a", 2}});
  CHECK(mentions(file.warnings, "line 1 of the hostfile 'h' (X)"));
}

TEST_CASE("hostfiles that are refused, with the line") {
  refusal(LaunchRule::kE1, [] { parse(""); }, {"the hostfile 'h' (X)", "names no host"});
  refusal(LaunchRule::kE1, [] { parse("# nothing\n\n"); }, {"names no host"});
  refusal(LaunchRule::kE1, [] { parse("a\nb slots=\n"); }, {"line 2", "slots=''"});
  refusal(LaunchRule::kE1, [] { parse("a slots=x"); }, {"line 1", "slots='x'"});
  refusal(LaunchRule::kE1, [] { parse("a slots=-1"); }, {"slots='-1'"});
  refusal(LaunchRule::kE4, [] { parse("a:4 slots=8"); }, {"two numbers of slots, 4 and 8"});
  refusal(LaunchRule::kE1, [] { parse("a:1,b:1"); }, {"line 1", "one host"});
  refusal(LaunchRule::kE8, [] { parse("a/b slots=1"); }, {"line 1", "'a/b'"});
  refusal(LaunchRule::kE4, [] { parse("a slots=2147483647\nb slots=1"); }, {"line 2"});
}

}  // namespace
}  // namespace taco
