#include "launch/port_check.h"

#include <cerrno>

#include "tests/launch/launching.h"

namespace taco {
namespace {

using namespace taco::testing;

// As Linux prints it: 29500 is 733C. One listener, and a connection that a third process has from
// the same port.
const char* const kHead =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
    "inode\n";
const std::string kTcp = std::string(kHead) +
                         "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 "
                         "00000000  1000        0 111 1 "
                         "0000000000000000 100 0 0 10 0\n"
                         "   1: 0A00000A:733C 0B00000A:01BB 01 00000000:00000000 00:00000000 "
                         "00000000  1000        0 333 1 "
                         "0000000000000000 20 4 30 10 -1\n";
const std::string kTcp6 =
    std::string(kHead) +
    "   0: 00000000000000000000000000000000:733C 00000000000000000000000000000000:0000 0A "
    "00000000:00000000 00:00000000 00000000     0        0 222 1 0000000000000000 100 0 0 10 0\n";

const Files kProc = {{"/proc/net/tcp", kTcp},           {"/proc/net/tcp6", kTcp6},
                     {"/proc/41/fd/3", "socket:[111]"}, {"/proc/41/comm", "nginx\n"},
                     {"/proc/42/fd/0", "/dev/null"},    {"/proc/42/fd/9", "socket:[222]"},
                     {"/proc/42/comm", "python3\n"},    {"/proc/43/fd/4", "socket:[333]"},
                     {"/proc/43/comm", "curl\n"},       {"/proc/self/fd/9", "socket:[222]"}};

BindProbe failing(int error) {
  return [error](int) { return error; };
}

TEST_CASE("an occupied port: the error names port and process (pytorch#126510)") {
  refusal(LaunchRule::kE6,
          [] { requireFreePort(29500, "MASTER_PORT", seamsOf(kProc), failing(EADDRINUSE)); },
          {"the port 29500 (MASTER_PORT) is taken by process 42 (python3)", "choose another port"});
  CHECK(portOwner(8080, seamsOf(kProc)) == "process 41 (nginx)");
}

TEST_CASE("who only has a connection from the port is named where nobody listens") {
  Files files = kProc;
  files.erase("/proc/net/tcp6");
  CHECK(portOwner(29500, seamsOf(files)) == "process 43 (curl)");
}

TEST_CASE("a copy of the socket that this process has from a fork does not count") {
  Files files = kProc;
  files["/proc/self"] = "40";
  files["/proc/40/fd/5"] = "socket:[222]";
  files["/proc/40/comm"] = "python3\n";
  CHECK(portOwner(29500, seamsOf(files)) == "process 42 (python3)");
  files.erase("/proc/42/fd/9");
  CHECK(portOwner(29500, seamsOf(files)) == "process 40 (python3)");
}

TEST_CASE("a process that /proc does not show: the port alone") {
  Files files = kProc;
  files.erase("/proc/42/fd/9");
  files.erase("/proc/43/fd/4");
  for (const Files& seen : {files, Files()}) {
    CHECK(portOwner(29500, seamsOf(seen)).empty());
    refusal(
        LaunchRule::kE6,
        [&] { requireFreePort(29500, "MASTER_PORT", seamsOf(seen), failing(EADDRINUSE)); },
        {"the port 29500 (MASTER_PORT) is taken by another process, which /proc does not show"});
  }
  files = kProc;
  files.erase("/proc/42/comm");
  CHECK(portOwner(29500, seamsOf(files)) == "process 42");
}

TEST_CASE("a privileged port, and other refusals of the system") {
  refusal(LaunchRule::kE6, [] { requireFreePort(80, "MASTER_PORT", seamsOf(), failing(EACCES)); },
          {"the port 80 (MASTER_PORT) is privileged", "choose one from 1024"});
  refusal(LaunchRule::kE6,
          [] { requireFreePort(29500, "MASTER_PORT", seamsOf(), failing(EADDRNOTAVAIL)); },
          {"the port 29500", "Cannot assign requested address"});
  CHECK_NOTHROW(requireFreePort(29500, "MASTER_PORT", seamsOf(), failing(0)));
}

TEST_CASE("tables of /proc that are cut or broken name nobody") {
  for (const std::string& table :
       {std::string(), std::string(kHead), kTcp.substr(0, 150), std::string(kHead) + "0: x y z\n",
        std::string(kHead) + " 0: 0100007F:ZZZZ 0 0A 0 0 0 0 0 1\n",
        std::string(kHead) + " 0: 0100007F: 0 0A 0 0 0 0 0 1\n"}) {
    CHECK(portOwner(29500, seamsOf({{"/proc/net/tcp", table}})).empty());
  }
}

}  // namespace
}  // namespace taco
