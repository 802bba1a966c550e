// Every parser on mutated texts: a value that keeps its promises, or a LaunchError, and nothing
// else. Meant to run under the sanitizers too.
#include <set>

#include "launch/address.h"
#include "launch/hostfile.h"
#include "launch/node_list.h"
#include "launch/port_check.h"
#include "launch/slurm.h"
#include "launch/text.h"
#include "launch/tf_config.h"
#include "tests/launch/fuzzing.h"
#include "tests/launch/launching.h"

namespace taco {
namespace {

using namespace taco::testing;

constexpr int kCases = 6000;

// Calls `parse` with mutations of `seeds`. It must sometimes succeed and sometimes refuse, or the
// fuzz tests nothing.
void fuzzParser(const char* what, const std::vector<std::string>& seeds,
                const std::function<void(const std::string&)>& parse) {
  Fuzz fuzz(what, kCases);
  int accepted = 0;
  int refused = 0;
  for (int i = 0; i < fuzz.cases(); ++i) {
    const std::string input = fuzz.mutated(fuzz.oneOf(seeds), seeds);
    INFO(what << ", seed " << fuzz.seed() << ", case " << i << ": " << inQuotes(input));
    try {
      parse(input);
      ++accepted;
    } catch (const LaunchError& error) {
      ++refused;
      if (std::string(error.what()).find("THIS") == std::string::npos) {
        FAIL("the error does not name what it came from: " << error.what());
      }
    } catch (const std::exception& error) {
      FAIL("an exception that is no LaunchError: " << error.what());
    }
  }
  CHECK(accepted > 0);
  CHECK(refused > 0);
}

// One comparison of Catch costs more than a parser: promises are checked together.
void promise(bool isKept) {
  if (!isKept) FAIL("the value breaks its promise");
}

bool isPort(const std::optional<int>& port) { return !port || (*port >= 1 && *port <= 65535); }

const std::vector<std::string> kAddresses = {
    "node-0",  "node-0:29500",  "10.0.0.1",     "10.0.0.1:29500",   "::1", "[::1]",
    "fd00::1", "[fd00::1]:123", "fe80::1%eth0", "a.b.c.svc.local.", "",    "29500"};
const std::vector<std::string> kLists = {
    "a:8,b:4", "9.0.255.56:1,9.0.255.118:1", "a:1,",
    "host",    "[fd00::1]:8,fd00::2",        "x:0,y:2147483647"};
const std::vector<std::string> kHostfiles = {"a slots=8\nb slots=4\n",
                                             "# c\r\n\r\na:8\r\nb slots = 4 max_slots=8 # d\r\n",
                                             "root@a\na\n", "[fd00::1]:3\n"};
const std::vector<std::string> kNodes = {"node[01-03,7],x", "r[1-2]n[1-2]", "a,b", "n[0-99]-ib"};
const std::vector<std::string> kTasks = {"2(x3),1", "4", "8,4", "1(x1000)"};

TEST_CASE("fuzz: addresses") {
  fuzzParser("addresses", kAddresses, [](const std::string& text) {
    const Address address = parseAddress(text, "THIS");
    promise(!address.host.empty() && address.host[0] != '[' && isPort(address.port));
    // Written down and read again it is the same.
    promise(parseAddress(hostAndPort(address.host, 7), "THIS") ==
            Address{address.host, 7, address.kind});
    isLoopback(text);
  });
}

TEST_CASE("fuzz: ports") {
  fuzzParser("ports", {"29500", "1", "65535", "65536", "-1", "0"},
             [](const std::string& text) { promise(isPort(parsePort(text, "THIS"))); });
}

TEST_CASE("fuzz: node lists") {
  fuzzParser("node lists", kLists, [](const std::string& text) {
    std::vector<std::string> warnings;
    const auto hosts = parseNodeList(text, "THIS", warnings);
    std::set<std::string> names;
    int64_t sum = 0;
    for (const HostSlots& host : hosts) {
      names.insert(host.host);
      sum += host.slots;
      promise(!host.host.empty() && host.slots >= 0);
    }
    promise(!hosts.empty() && names.size() == hosts.size() && sum == sumOfSlots(hosts));
    hostsText(hosts);
  });
}

TEST_CASE("fuzz: hostfiles") {
  fuzzParser("hostfiles", kHostfiles, [](const std::string& text) {
    std::vector<std::string> warnings;
    const auto hosts = parseHostfile(text, "THIS", warnings);
    std::set<std::string> names;
    int64_t sum = 0;
    for (const HostSlots& host : hosts) {
      names.insert(host.host);
      sum += host.slots;
      promise(!host.host.empty() && host.slots >= 0);
    }
    promise(!hosts.empty() && names.size() == hosts.size() && sum == sumOfSlots(hosts));
  });
}

TEST_CASE("fuzz: Slurm's node lists") {
  fuzzParser("Slurm node lists", kNodes, [](const std::string& text) {
    const auto hosts = parseSlurmNodes(text, "THIS");
    promise(!hosts.empty() && hosts.size() <= 65536);
    for (const std::string& host : hosts) {
      promise(!host.empty() && host.find_first_of("[],") == std::string::npos);
    }
  });
}

TEST_CASE("fuzz: Slurm's task lists") {
  fuzzParser("Slurm task lists", kTasks, [](const std::string& text) {
    const auto tasks = parseSlurmTasks(text, "THIS");
    promise(!tasks.empty() && tasks.size() <= 65536);
    for (const int count : tasks) promise(count >= 0);
  });
}

TEST_CASE("fuzz: TF_CONFIG") {
  const std::string small =
      R"({"cluster":{"chief":["c:1"],"worker":["w:1","x:2"],"ps":["p:3"]},
          "task":{"type":"ps","index":0}})";
  fuzzParser("TF_CONFIG", {small, kTiTfConfig, "{}"}, [](const std::string& text) {
    try {
      const auto cluster = parseTfConfig(text);
      if (!cluster) return;
      promise(cluster->rank >= 0 && static_cast<size_t>(cluster->rank) < cluster->tasks.size());
      promise(cluster->tasks.front().role != "ps");
    } catch (const LaunchError& error) {
      promise(std::string(error.what()).find("TF_CONFIG") != std::string::npos);
      throw LaunchError(error.rule(), "THIS");
    }
  });
}

TEST_CASE("fuzz: the tables of /proc never fail") {
  const std::string table =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
      "inode\n"
      "   0: 0100007F:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 "
      "111 1\n";
  Fuzz fuzz("/proc/net/tcp", kCases);
  Files files = {{"/proc/7/fd/3", "socket:[111]"}, {"/proc/7/comm", "python"}};
  int named = 0;
  for (int i = 0; i < fuzz.cases(); ++i) {
    files["/proc/net/tcp"] = fuzz.mutated(table, {table});
    files["/proc/7/fd/3"] = fuzz.chance(20) ? fuzz.mutated("socket:[111]", {}) : "socket:[111]";
    named += portOwner(29500, seamsOf(files)).empty() ? 0 : 1;
  }
  CHECK(named > 0);
  CHECK(named < fuzz.cases());
}

}  // namespace
}  // namespace taco
