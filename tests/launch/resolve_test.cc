// Names that appear late, masters that start late, and this host's own address, on a clock that is
// set forward by waiting.
#include "launch/resolve.h"

#include "tests/launch/launching.h"

namespace taco {
namespace {

using namespace taco::testing;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

// A network in which things are there from a given second on.
struct World {
  steady_clock::time_point now{};
  milliseconds nameAppears{0};
  milliseconds masterListens{0};
  std::map<std::string, std::vector<std::string>> names = {{"node-0", {"10.0.0.1"}}};
  std::map<std::string, std::string> sources;  // target -> own address towards it
  int lookUps = 0;
  std::vector<std::string> lines;

  milliseconds elapsed() const {
    return std::chrono::duration_cast<milliseconds>(now.time_since_epoch());
  }

  NetworkSeams seams() {
    NetworkSeams seams;
    seams.lookUp = [this](const std::string& host, milliseconds) -> Lookup {
      ++lookUps;
      if (elapsed() < nameAppears || names.count(host) == 0) {
        return {{}, "Name or service not known", false};
      }
      return {names.at(host), "", false};
    };
    seams.connect = [this](const std::string& address, int port, milliseconds) -> std::string {
      if (address == "10.0.0.1" && port == 29500 && elapsed() >= masterListens) return "";
      return "Connection refused";
    };
    seams.sourceTowards = [this](const std::string& address) {
      const auto found = sources.find(address);
      return found == sources.end() ? std::string() : found->second;
    };
    seams.now = [this] { return now; };
    seams.sleep = [this](milliseconds time) { now += time; };
    return seams;
  }

  Progress progress() {
    return [this](const std::string& line) { lines.push_back(line); };
  }

  std::vector<std::string> resolveHost(const std::string& host, milliseconds timeout) {
    return resolve(host, timeout, "MASTER_ADDR", progress(), seams());
  }
};

TEST_CASE("a name that resolves only after 5 s is waited for (kubeflow/pytorch-operator#125)") {
  World world;
  world.nameAppears = milliseconds(5100);
  CHECK(world.resolveHost("node-0", seconds(60)) == std::vector<std::string>{"10.0.0.1"});
  CHECK(world.elapsed() >= milliseconds(5100));
  CHECK(world.elapsed() < milliseconds(6000));
  REQUIRE(world.lines.size() == 1);
  CHECK(world.lines[0] ==
        "waiting for the name node-0 (MASTER_ADDR) to resolve: Name or service not known (5 s of "
        "60 s)");
}

TEST_CASE("E8: a name that never resolves: a line every 5 s, then an error that says which name") {
  World world;
  world.nameAppears = std::chrono::hours(1);
  refusal(LaunchRule::kE8, [&] { world.resolveHost("node-0", seconds(30)); },
          {"MASTER_ADDR is 'node-0'", "did not resolve within 30 s", "Name or service not known"});
  CHECK(world.lines.size() == 5);  // at 5, 10, 15, 20, 25 s
  CHECK(world.elapsed() == seconds(30));
}

TEST_CASE("a deadline that has passed still gives the name one chance") {
  World world;
  CHECK(world.resolveHost("node-0", milliseconds(0)) == std::vector<std::string>{"10.0.0.1"});
  world.names.clear();
  refusal(LaunchRule::kE8, [&] { world.resolveHost("node-0", milliseconds(-5)); }, {"within 0 s"});
  CHECK(world.lookUps == 2);
}

TEST_CASE("addresses are not looked up, and what is no address is refused at once") {
  World world;
  CHECK(world.resolveHost("10.1.2.3", seconds(1)) == std::vector<std::string>{"10.1.2.3"});
  CHECK(world.resolveHost("::1", seconds(1)) == std::vector<std::string>{"::1"});
  CHECK(world.resolveHost("[fd00::1]", seconds(1)) == std::vector<std::string>{"fd00::1"});
  refusal(LaunchRule::kE8, [&] { world.resolveHost("a b", seconds(9)); }, {"'a b'"});
  CHECK(world.lookUps == 0);
  CHECK(world.elapsed() == seconds(0));
}

TEST_CASE("a slow name server: what it said last is reported, not that it has not answered") {
  World world;
  NetworkSeams seams = world.seams();
  int calls = 0;
  seams.lookUp = [&](const std::string&, milliseconds) -> Lookup {
    return ++calls == 1 ? Lookup{{}, "no such name", false} : Lookup{{}, "no answer yet", true};
  };
  refusal(LaunchRule::kE8,
          [&] { resolve("node-0", seconds(2), "MASTER_ADDR", world.progress(), seams); },
          {"no such name"});
}

TEST_CASE("a master that is up 5 s late: workers wait, say so, and join") {
  World world;
  world.masterListens = milliseconds(5100);
  CHECK(waitForListener("node-0", 29500, seconds(60), "MASTER_ADDR", world.progress(),
                        world.seams()) == "10.0.0.1");
  CHECK(world.elapsed() >= milliseconds(5100));
  REQUIRE(world.lines.size() == 1);
  CHECK(world.lines[0] ==
        "waiting for the master at node-0:29500 (MASTER_ADDR): Connection refused (5 s of 60 s)");
}

TEST_CASE("a master that never comes, and a wrong port: the error has address, port and reason") {
  World world;
  refusal(LaunchRule::kE8,
          [&] {
            waitForListener("node-0", 29501, seconds(12), "MASTER_ADDR", world.progress(),
                            world.seams());
          },
          {"nothing listened at node-0:29501 (MASTER_ADDR) within 12 s", "Connection refused",
           "the port is the same on all hosts"});
  CHECK(world.lines.size() == 2);
}

TEST_CASE("a name server that is slow after its first answer: the master is found at that answer") {
  World world;
  world.masterListens = milliseconds(3000);
  NetworkSeams seams = world.seams();
  int calls = 0;
  seams.lookUp = [&](const std::string&, milliseconds) -> Lookup {
    return ++calls == 1 ? Lookup{{"10.0.0.1"}, "", false} : Lookup{{}, "no answer yet", true};
  };
  CHECK(waitForListener("node-0", 29500, seconds(10), "MASTER_ADDR", {}, seams) == "10.0.0.1");
  CHECK(world.elapsed() < seconds(4));
  // And what is reported at the end is that nothing listens there, not the name.
  world.now = {};
  world.masterListens = std::chrono::hours(1);
  calls = 0;
  refusal(LaunchRule::kE8,
          [&] { waitForListener("node-0", 29500, seconds(2), "MASTER_ADDR", {}, seams); },
          {"nothing listened at node-0:29500"});
}

TEST_CASE("a host with several addresses is tried at each of them") {
  World world;
  world.names["node-0"] = {"fd00::1", "10.0.0.1"};  // IPv6 first, and nothing there
  // The caller gets the address that answered, and need not resolve the name again.
  CHECK(waitForListener("node-0", 29500, seconds(5), "MASTER_ADDR", world.progress(),
                        world.seams()) == "10.0.0.1");
  CHECK(world.elapsed() == seconds(0));
  CHECK(world.lines.empty());
}

TEST_CASE(
    "/etc/hosts maps the own name to 127.0.1.1: the address routed to the master is used "
    "(aws-do-eks#69, pytorch#15592)") {
  World world;
  world.names["here"] = {"127.0.1.1"};
  world.names["master"] = {"10.0.0.9"};
  world.sources = {{"10.0.0.9", "10.0.0.5"}, {"192.0.2.1", "172.17.0.1"}};
  CHECK(reachableAddress("here", "master", world.seams()) == "10.0.0.5");
  CHECK(reachableAddress("here", "10.0.0.9", world.seams()) == "10.0.0.5");
  // Without another host to route to, or with one that is this host: the default route.
  CHECK(reachableAddress("here", "", world.seams()) == "172.17.0.1");
  CHECK(reachableAddress("here", "127.0.0.1", world.seams()) == "172.17.0.1");
  // A name that is right is believed.
  world.names["here"] = {"127.0.1.1", "10.0.0.6"};
  CHECK(reachableAddress("here", "master", world.seams()) == "10.0.0.6");
  // Nothing but loopback.
  world.names["here"] = {"127.0.1.1"};
  world.sources.clear();
  CHECK(reachableAddress("here", "", world.seams()) == "127.0.1.1");
  world.names.clear();
  CHECK(reachableAddress("here", "", world.seams()) == "127.0.0.1");
}

}  // namespace
}  // namespace taco
