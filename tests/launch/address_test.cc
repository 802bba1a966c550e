#include "launch/address.h"

#include "tests/launch/launching.h"

namespace taco {
namespace {

using namespace taco::testing;

Address parse(const std::string& text) { return parseAddress(text, "MASTER_ADDR"); }

TEST_CASE("addresses that are accepted, with and without a port") {
  struct Good {
    const char* text;
    const char* host;
    std::optional<int> port;
    HostKind kind;
  };
  const Good all[] = {
      {"node-0", "node-0", {}, HostKind::kName},
      {"node_0.svc.cluster.local", "node_0.svc.cluster.local", {}, HostKind::kName},
      {"node-0.example.com.", "node-0.example.com.", {}, HostKind::kName},
      {"node-0:29500", "node-0", 29500, HostKind::kName},
      {"4node", "4node", {}, HostKind::kName},
      {"10.0.0.1", "10.0.0.1", {}, HostKind::kIpv4},
      {"10.0.0.1:1", "10.0.0.1", 1, HostKind::kIpv4},
      {"::1", "::1", {}, HostKind::kIpv6},
      {"[::1]", "::1", {}, HostKind::kIpv6},
      {"[fd00::1]", "fd00::1", {}, HostKind::kIpv6},
      {"fd00::1", "fd00::1", {}, HostKind::kIpv6},
      {"[fd00::1]:65535", "fd00::1", 65535, HostKind::kIpv6},
      {"fe80::1%eth0", "fe80::1%eth0", {}, HostKind::kIpv6},
      {"::ffff:10.0.0.1", "::ffff:10.0.0.1", {}, HostKind::kIpv6},
  };
  for (const Good& good : all) {
    INFO(good.text);
    CHECK(parse(good.text) == Address{good.host, good.port, good.kind});
  }
}

TEST_CASE("what is no address is refused (E8), with the reason") {
  const std::pair<std::string, const char*> all[] = {
      {"", "the host is empty"},
      {":29500", "the host is empty"},
      {"29500", "it is a plain number"},
      {"10.0.0", "four numbers from 0 to 255"},
      {"10.0.0.256", "four numbers from 0 to 255"},
      {"a..b", "nothing between two dots"},
      {".a", "nothing between two dots"},
      {"a b", "has the character ' '"},
      {"a\r", "\\x0d"},
      {"tcp://node:29500", "it is a URL"},
      {"a:b:c", "several colons"},
      {"[::1", "not closed"},
      {"[node]", "IPv6 address"},
      {"[::1]29500", "only :port"},
      {"[]", "IPv6 address"},
      {std::string(64, 'a'), "63 characters"},
      {std::string(300, 'a'), "253 characters"},
      {"fe80::1%", "several colons"},
      {"fe80::1%e/../x", "several colons"},
  };
  for (const auto& [text, why] : all) {
    INFO(text);
    const std::string input = text;
    refusal(LaunchRule::kE8, [&] { parse(input); }, {"MASTER_ADDR is '", why});
  }
}

TEST_CASE("ports: 1 to 65535") {
  CHECK(parsePort("1", "MASTER_PORT") == 1);
  CHECK(parsePort("65535", "MASTER_PORT") == 65535);
  for (const char* const text : {"0", "65536", "66660", "-1", "99999999999999999999"}) {
    refusal(LaunchRule::kE6, [&] { parsePort(text, "MASTER_PORT"); },
            {"MASTER_PORT is '", text, "1 to 65535"});
  }
  for (const char* const text : {"", "x", "80a", "8 0", "0x50", "+80", "-", "8.0"}) {
    refusal(LaunchRule::kE1, [&] { parsePort(text, "MASTER_PORT"); },
            {"MASTER_PORT is '", text, "1 to 65535"});
  }
  refusal(LaunchRule::kE6, [] { parse("node:66660"); }, {"the port of MASTER_ADDR ('node:66660')"});
  refusal(LaunchRule::kE1, [] { parse("node:"); }, {"the port of MASTER_ADDR ('node:')"});
}

TEST_CASE("loopback: every address that leads another host to itself") {
  for (const char* const host :
       {"127.0.0.1", "127.0.1.1", "localhost", "LOCALHOST", "localhost.", "::1", "[::1]", "0.0.0.0",
        "::", "::ffff:127.0.0.1", "ip6-localhost"}) {
    CHECK(isLoopback(host));
  }
  for (const char* const host :
       {"10.0.0.1", "128.0.0.1", "fd00::1", "node", "localhost1", "", "[", "::ffff:10.0.0.1"}) {
    CHECK_FALSE(isLoopback(host));
  }
}

TEST_CASE("host and port together: IPv6 in brackets") {
  CHECK(hostAndPort("node", 80) == "node:80");
  CHECK(hostAndPort("10.0.0.1", 80) == "10.0.0.1:80");
  CHECK(hostAndPort("fd00::1", 80) == "[fd00::1]:80");
  CHECK(hostAndPort("[fd00::1]", 80) == "[fd00::1]:80");
}

}  // namespace
}  // namespace taco
