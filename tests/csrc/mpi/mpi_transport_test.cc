#include "csrc/mpi/mpi_transport.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "csrc/base/abort.h"
#include "csrc/base/format.h"
#include "csrc/transport/mesh.h"
#include "tests/csrc/mpi/mpi_ranks.h"

namespace taco {
namespace {

using namespace taco::testing;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("over MPI everybody sends to everybody, in all sizes") {
  const int size = GENERATE(2, 3, 5);
  Processes processes(size);
  const Outcomes outcomes = tryRanks(size, [&](int me) {
    AbortSignal abort;
    Mesh mesh(processes.transport(me), abort);
    uint64_t sequence = 0;
    const size_t small = kSmallPacketBytes - sizeof(PacketHeader) - sizeof(FrameHeader);
    const size_t large = kPacketBytes - sizeof(PacketHeader) - sizeof(FrameHeader);
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{47}, small - 1, small, small + 1,
                               large - 1, large, large + 1, 2 * large, size_t{5} << 20}) {
      const Call call = callOf(sequence++);
      std::vector<std::vector<char>> out(static_cast<size_t>(size)), in(static_cast<size_t>(size));
      std::vector<Transfer> sends(static_cast<size_t>(size)), receives(static_cast<size_t>(size));
      for (int peer = 0; peer < size; ++peer) {
        if (peer == me) continue;
        const auto at = static_cast<size_t>(peer);
        out[at] = pattern(bytes, static_cast<unsigned>(10 * me + peer));
        in[at].assign(bytes, 0);
        mesh.receive(peer, call, 0, in[at].data(), bytes, receives[at]);
        mesh.send(peer, call, 0, out[at].data(), bytes, sends[at]);
      }
      for (int peer = 0; peer < size; ++peer) {
        if (peer == me) continue;
        const auto at = static_cast<size_t>(peer);
        mesh.wait(receives[at], call, Deadline::after(Millis(60000)));
        mesh.wait(sends[at], call, Deadline::after(Millis(60000)));
        expect(in[at] == pattern(bytes, static_cast<unsigned>(10 * peer + me)),
               str("wrong bytes of ", bytes));
      }
    }
    mesh.close(Millis(5000));
  });
  for (int rank = 0; rank < size; ++rank) CHECK(outcomes.succeeded(rank));
}

TEST_CASE("a rank that does not want a frame holds its sender back, and nobody else") {
  Pair pair;
  pair.atB.willing = false;
  const auto data = pattern(1 << 20, 1);
  int sent = 0;
  for (uint32_t i = 0; i < 8; ++i)
    pair.a->send(1, frame(data.size(), i), data.data(), [&] { ++sent; });
  for (int i = 0; i < 200; ++i) {
    pair.a->progress(kNoWait);
    pair.b->progress(kNoWait);
  }
  CHECK(sent >= 1);  // the window
  CHECK(sent <= 3);
  CHECK(pair.atB.arrived.empty());

  // The other direction and another channel of the same process go on meanwhile.
  pair.b->send(0, frame(data.size()), data.data(), nullptr);
  pair.until([&] { return pair.atA.arrived.size() == 1; });
  auto otherA = pair.processes.transport(0, "test/1");
  auto otherB = pair.processes.transport(1, "test/1");
  Taker atOther;
  otherB->setReceiver(&atOther);
  otherA->send(1, frame(data.size()), data.data(), nullptr);
  pair.until([&] {
    otherA->progress(kNoWait);
    otherB->progress(kNoWait);
    return atOther.arrived.size() == 1;
  });

  pair.atB.willing = true;
  pair.b->resume(0);
  pair.until([&] { return pair.atB.arrived.size() == 8; });
  CHECK(sent == 8);
  for (uint32_t i = 0; i < 8; ++i) CHECK(pair.atB.arrived[i].step == i);
}

TEST_CASE("many small frames pass a small window") {
  Pair pair;
  const char byte = 7;
  for (uint32_t i = 0; i < 20000; ++i) pair.a->sendCopy(1, frame(1, i), &byte);
  pair.until([&] { return pair.atB.arrived.size() == 20000; });
  bool inOrder = true;
  for (uint32_t i = 0; i < 20000; ++i) inOrder &= pair.atB.arrived[i].step == i;
  CHECK(inOrder);
}

TEST_CASE("what comes before a rank has opened its channel waits for it") {
  Processes processes(2);
  auto a = processes.transport(0);
  const auto data = pattern(100000, 3);
  a->send(1, frame(data.size()), data.data(), nullptr);
  for (int i = 0; i < 50; ++i) {
    a->progress(kNoWait);
    processes.ports[1]->progress();
  }
  auto b = processes.transport(1);
  Taker atB;
  b->setReceiver(&atB);
  const Deadline deadline = Deadline::after(Millis(20000));
  while (atB.arrived.empty() && !deadline.expired()) {
    a->progress(kNoWait);
    b->progress(kNoWait);
  }
  REQUIRE(atB.arrived.size() == 1);
  CHECK(std::equal(data.begin(), data.end(), atB.memory.begin()));
}

TEST_CASE("memory that was taken back is not touched again") {
  Pair pair;
  pair.atB.willing = false;
  auto data = pattern(4 << 20, 5);
  const auto original = data;
  pair.a->send(1, frame(data.size()), data.data(), nullptr);
  pair.a->detachPayload(1, data.data(), 1);
  std::fill(data.begin(), data.end(), 0);
  pair.atB.willing = true;
  pair.until([&] { return pair.atB.arrived.size() == 1; });
  CHECK(std::equal(original.begin(), original.end(), pair.atB.memory.begin()));

  // On the receiving side: the rest of a payload is dropped.
  std::fill(pair.atB.memory.begin(), pair.atB.memory.end(), 0);
  bool begun = false;
  Taker discarder;
  pair.b->setReceiver(&discarder);
  pair.a->send(1, frame(original.size()), original.data(), [&] { begun = true; });
  pair.until([&] { return discarder.memory[100] == original[100]; });
  pair.b->discardPayload(0);
  std::fill(discarder.memory.begin(), discarder.memory.end(), 0);
  pair.until([&] { return discarder.arrived.size() == 1; });
  CHECK(begun);
  CHECK(
      std::all_of(discarder.memory.begin(), discarder.memory.end(), [](char c) { return c == 0; }));
}

TEST_CASE("ranks of different MPI jobs, or two that are the same rank of MPI, are refused") {
  Processes processes(2);
  MpiConfig config = configOf(0, 2);
  SECTION("jobs") {
    config.addresses[1].job = "other";
    CHECK_THROWS_WITH(MpiTransport(config, *processes.ports[0]),
                      ContainsSubstring("rank 1 of the group is rank 1 of another MPI job") &&
                          ContainsSubstring("TACO_TRANSPORT=mpi"));
  }
  SECTION("twice") {
    config.addresses[1].worldRank = 0;
    CHECK_THROWS_WITH(MpiTransport(config, *processes.ports[0]),
                      ContainsSubstring("start one process for each rank with mpirun"));
  }
}

TEST_CASE("in a forked child a transport over MPI does nothing") {
  Pair pair;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const char byte = 1;
    pair.a->sendCopy(1, frame(1), &byte);
    pair.a->watch(1);
    const bool moved = pair.a->progress(Millis(1));
    pair.a->wake();
    pair.a->fail(Error(ErrorCode::kAborted, "child"));
    pair.a->close(Millis(100));
    ::_exit(moved ? 1 : 0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  const char byte = 1;
  pair.a->sendCopy(1, frame(1), &byte);
  pair.until([&] { return pair.atB.arrived.size() == 1; });
}

}  // namespace
}  // namespace taco
