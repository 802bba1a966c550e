// The seams to the machine: its loopback interface, /proc and file system, and nothing beyond.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>

#include "csrc/base/format.h"
#include "launch/address.h"
#include "launch/port_check.h"
#include "launch/resolve.h"
#include "tests/launch/launching.h"

namespace taco {
namespace {

using namespace taco::testing;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Listens on a free port of 127.0.0.1.
struct Listener {
  int descriptor = -1;
  int port = 0;

  Listener() {
    descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(::bind(descriptor, raw, size) == 0);
    REQUIRE(::listen(descriptor, 1) == 0);
    REQUIRE(::getsockname(descriptor, raw, &size) == 0);
    port = ntohs(address.sin_port);
  }
  ~Listener() { ::close(descriptor); }
};

void ignoreLine(const std::string&) {}

TEST_CASE("the system's names: localhost resolves, in time, without a word") {
  int lines = 0;
  const auto addresses = resolve(
      "localhost", seconds(30), "MASTER_ADDR", [&](const std::string&) { ++lines; },
      systemNetwork());
  CHECK(lines == 0);
  REQUIRE_FALSE(addresses.empty());
  for (const std::string& address : addresses) CHECK(isLoopback(address));
}

TEST_CASE("a name that cannot be: the error is there when the deadline is, whatever DNS does") {
  const auto begin = std::chrono::steady_clock::now();
  refusal(LaunchRule::kE8,
          [] {
            resolve("nowhere.invalid", milliseconds(300), "MASTER_ADDR", ignoreLine,
                    systemNetwork());
          },
          {"'nowhere.invalid'", "within 0.3 s"});
  CHECK(std::chrono::steady_clock::now() - begin < seconds(30));
}

TEST_CASE("a listener is found, a closed port is not") {
  int closed = 0;
  {
    const Listener listener;
    CHECK_NOTHROW(waitForListener("127.0.0.1", listener.port, seconds(30), "MASTER_ADDR",
                                  ignoreLine, systemNetwork()));
    closed = listener.port;
  }
  refusal(LaunchRule::kE8,
          [&] {
            waitForListener("127.0.0.1", closed, milliseconds(100), "MASTER_ADDR", ignoreLine,
                            systemNetwork());
          },
          {str("127.0.0.1:", closed), "Connection refused"});
}

TEST_CASE("the route to this host is this host") {
  CHECK(systemNetwork().sourceTowards("127.0.0.1") == "127.0.0.1");
  CHECK(systemNetwork().sourceTowards("no address").empty());
}

TEST_CASE("an occupied port names this very process") {
  const Listener listener;
  CHECK(bindProbe(listener.port) == EADDRINUSE);
  CHECK(bindProbeOn(AF_INET, listener.port) == EADDRINUSE);  // as where IPv6 is off
  CHECK(bindProbeOn(AF_INET, 0) == 0);                       // any port that is free
  CHECK(bindProbe(0) == 0);
  CHECK(bindProbeOn(-1, 0) == EAFNOSUPPORT);
  refusal(LaunchRule::kE6, [&] { requireFreePort(listener.port, "MASTER_PORT", systemSeams()); },
          {str("the port ", listener.port), str("process ", ::getpid(), " (")});
}

TEST_CASE("files, directories and links of the machine") {
  const LaunchSeams seams = systemSeams();
  const std::string path = str("/tmp/taco_launch_test_", ::getpid());
  std::ofstream(path, std::ios::binary) << std::string("a\0b\n", 4) << std::string(100000, 'x');
  CHECK(seams.readFile(path) == std::string("a\0b\n", 4) + std::string(100000, 'x'));
  std::remove(path.c_str());
  CHECK_FALSE(seams.readFile(path));
  CHECK_FALSE(seams.readFile("/dev/zero"));  // never ends
  CHECK_FALSE(seams.readFile("/"));
  CHECK(mentions(seams.listDirectory("/proc/self"), "fd"));
  CHECK(seams.listDirectory("/nowhere").empty());
  CHECK(seams.readLink("/proc/self") == std::to_string(::getpid()));
  CHECK_FALSE(seams.readLink("/"));
  REQUIRE_FALSE(seams.ownNames().empty());
  CHECK_FALSE(seams.ownNames().front().empty());
}

}  // namespace
}  // namespace taco
