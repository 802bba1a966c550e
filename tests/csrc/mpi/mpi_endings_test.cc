#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "csrc/base/abort.h"
#include "csrc/base/format.h"
#include "csrc/transport/mesh.h"
#include "tests/csrc/mpi/mpi_ranks.h"

namespace taco {
namespace {

using namespace taco::testing;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("who leaves says goodbye after everything it sent") {
  Pair pair;
  const auto data = pattern(1 << 20, 9);
  pair.a->send(1, frame(data.size()), data.data(), nullptr);
  pair.a->close(Millis(5000));
  pair.a.reset();
  pair.until([&] { return !pair.atB.lost.empty(); });
  CHECK(pair.atB.arrived.size() == 1);
  CHECK(pair.atB.lost[0].second == Transport::Receiver::Loss::kLeft);
  CHECK_THAT(pair.atB.lost[0].first, ContainsSubstring("rank 0 has left the group"));
}

TEST_CASE("a failure is told to all, also to those that never spoke with the failing rank") {
  Pair pair;
  pair.a->fail(Error(ErrorCode::kMismatch, "the shapes differ", 1));
  pair.until([&] { return !pair.atB.lost.empty(); });
  CHECK(pair.atB.lost[0].second == Transport::Receiver::Loss::kFailed);
  CHECK_THAT(pair.atB.lost[0].first, ContainsSubstring("rank 0 failed: the shapes differ"));
}

TEST_CASE("who ends without a goodbye counts as dead") {
  Pair pair;
  pair.b->watch(0);
  for (int i = 0; i < 50; ++i) {
    pair.b->progress(kNoWait);
    pair.a->progress(kNoWait);
  }
  pair.a.reset();
  pair.until([&] { return !pair.atB.lost.empty(); });
  CHECK(pair.atB.lost[0].second == Transport::Receiver::Loss::kDied);
}

TEST_CASE("who asks after a rank that has ended is answered") {
  Pair pair;
  pair.a->close(Millis(100));  // says goodbye to nobody: it knows of nobody
  pair.a.reset();
  const bool sends = GENERATE(false, true);
  if (sends) {
    const char byte = 1;
    pair.b->sendCopy(0, frame(1), &byte);
  } else {
    pair.b->watch(0);
  }
  // Only the thread of a's port is left to answer.
  pair.until([&] { return !pair.atB.lost.empty(); });
  CHECK(pair.atB.lost[0].second == Transport::Receiver::Loss::kLeft);
}

TEST_CASE("what MPI reports about a peer ends the channel to it") {
  Pair pair;
  pair.processes.world.cut(1);
  const char byte = 1;
  pair.a->sendCopy(1, frame(1), &byte);
  pair.until([&] { return !pair.atA.lost.empty(); });
  CHECK(pair.atA.lost[1].second == Transport::Receiver::Loss::kDied);
  CHECK_THAT(pair.atA.lost[1].first,
             ContainsSubstring("rank 1 cannot be reached") && ContainsSubstring("no route"));
}

TEST_CASE("an MPI that breaks down ends all channels, and the deadline of nobody is needed") {
  Pair pair;
  pair.processes.world.breakRank(0);
  pair.until([&] { return !pair.atA.lost.empty(); });
  CHECK_THAT(pair.atA.lost[1].first, ContainsSubstring("the network is gone"));
  pair.a->close(Millis(100));
}

TEST_CASE("a process that was killed is missed by those who watch it") {
  Processes processes(2);
  MpiConfig config = configOf(0, 2);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    for (;;) ::pause();
  }
  config.addresses[1] = MpiAddress::ofThisProcess();
  config.addresses[1].job = "job";
  config.addresses[1].worldRank = 1;
  config.addresses[1].pid = child;
  config.addresses[1].started = "1";  // another process, which had the same number before
  CHECK(config.addresses[1].isDead(config.addresses[1].machine));
  {
    std::ifstream stat(str("/proc/", child, "/stat"));
    std::string field;
    for (int number = 1; number <= 22; ++number) stat >> field;  // its name has no blanks
    config.addresses[1].started = field;
  }
  CHECK_FALSE(config.addresses[1].isDead(config.addresses[1].machine));
  CHECK_FALSE(config.addresses[1].isDead("another machine"));

  MpiTransport transport(config, *processes.ports[0]);
  Taker taker;
  transport.setReceiver(&taker);
  transport.watch(1);
  ::kill(child, SIGKILL);
  const Deadline deadline = Deadline::after(Millis(20000));
  while (taker.lost.empty() && !deadline.expired()) transport.progress(Millis(20));
  ::waitpid(child, nullptr, 0);
  REQUIRE(taker.lost.count(1) == 1);
  CHECK(taker.lost[1].second == Transport::Receiver::Loss::kDied);
  CHECK_THAT(taker.lost[1].first, ContainsSubstring(str("pid ", child)));
}

TEST_CASE("a wait over MPI sees its deadline and the abort signal") {
  Processes processes(2);
  AbortSignal abort;
  Mesh mesh(processes.transport(0), abort);
  auto other = processes.transport(1);  // alive, and silent
  char byte = 0;
  Transfer transfer;
  const Call call = callOf(1);
  mesh.receive(1, call, 0, &byte, 1, transfer);
  SECTION("deadline") {
    try {
      mesh.wait(transfer, call, Deadline::after(Millis(100)));
      FAIL("no error");
    } catch (const Error& why) {
      CHECK(why.code() == ErrorCode::kTimeout);
      CHECK_THAT(why.what(), ContainsSubstring("waiting for rank 1 to send its data"));
    }
  }
  SECTION("abort") {
    std::thread later([&] {
      std::this_thread::sleep_for(Millis(50));
      abort.raise(Error(ErrorCode::kAborted, "enough"));
    });
    CHECK_THROWS_WITH(mesh.wait(transfer, call, Deadline::never()), "enough");
    later.join();
  }
}

}  // namespace
}  // namespace taco
