#include "launch/node_list.h"

#include "csrc/base/format.h"
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
  result.hosts = parseNodeList(text, "NODE_LIST", result.warnings);
  return result;
}

TEST_CASE("the TI guide's lists") {
  const auto ddp = parse(kTiDdp.at("NODE_LIST"));
  CHECK(ddp.hosts ==
        std::vector<HostSlots>{{"timaker-xxxyyy-launcher.training-job.svc.cluster.local", 1},
                               {"timaker-xxxyyy-worker-0.training-job.svc.cluster.local", 1}});
  CHECK(ddp.warnings.empty());
  CHECK(parse("9.0.255.56:1,9.0.255.118:1").hosts ==
        std::vector<HostSlots>{{"9.0.255.56", 1}, {"9.0.255.118", 1}});
  CHECK(parse("gpu1:8,gpu2:8").hosts == std::vector<HostSlots>{{"gpu1", 8}, {"gpu2", 8}});
}

TEST_CASE("mixed counts, no count, no GPU, IPv6, blanks") {
  const auto list = parse(" a:8, b:4 ,c,d:0,fd00::1,[fd00::2],[fd00::3]:2");
  CHECK(
      list.hosts ==
      std::vector<HostSlots>{
          {"a", 8}, {"b", 4}, {"c", 1}, {"d", 0}, {"fd00::1", 1}, {"fd00::2", 1}, {"fd00::3", 2}});
  CHECK(list.warnings.empty());
  CHECK(sumOfSlots(list.hosts) == 17);
}

TEST_CASE("a trailing comma is accepted with a warning") {
  for (const char* const text : {"a:8,b:8,", ",a:8,b:8", "a:8,,b:8", "a:8, ,b:8"}) {
    const auto list = parse(text);
    CHECK(list.hosts == std::vector<HostSlots>{{"a", 8}, {"b", 8}});
    REQUIRE(list.warnings.size() == 1);
    CHECK_THAT(list.warnings[0], Catch::Matchers::ContainsSubstring("a comma too many"));
    CHECK_THAT(list.warnings[0], Catch::Matchers::ContainsSubstring(text));
  }
}

TEST_CASE("lists that are refused") {
  refusal(LaunchRule::kE4, [] { parse("a:8,b:8,a:8"); }, {"NODE_LIST", "'a' twice"});
  refusal(LaunchRule::kE1, [] { parse(""); }, {"NODE_LIST is ''", "at least one host"});
  refusal(LaunchRule::kE1, [] { parse(",,"); }, {"at least one host"});
  refusal(LaunchRule::kE1, [] { parse("a:eight"); }, {"'a:eight'", "'eight'", "number of GPUs"});
  refusal(LaunchRule::kE1, [] { parse("a:-1"); }, {"'-1'"});
  refusal(LaunchRule::kE1, [] { parse("a:"); }, {"'a:'"});
  refusal(LaunchRule::kE1, [] { parse("a:0.5"); }, {"'0.5'"});
  refusal(LaunchRule::kE8, [] { parse("a b:8"); }, {"'a b'"});
  refusal(LaunchRule::kE8, [] { parse("a:8;b:8"); }, {"NODE_LIST"});
  refusal(LaunchRule::kE8, [] { parse(":8"); }, {"the host is empty"});
  refusal(LaunchRule::kE8, [] { parse("[fd00::1]:8:9"); }, {"more than a host and a number"});
  refusal(LaunchRule::kE4, [] { parse("a:2147483647,b:1"); }, {"more GPUs"});
}

TEST_CASE("hosts in a message: a dozen, then how many more") {
  std::vector<HostSlots> hosts;
  for (int i = 0; i < 14; ++i) hosts.push_back({str("n", i), 8});
  CHECK(hostsText({hosts.begin(), hosts.begin() + 2}) == "n0:8, n1:8");
  CHECK_THAT(hostsText(hosts), Catch::Matchers::ContainsSubstring("n11:8 and 2 more"));
}

}  // namespace
}  // namespace taco
