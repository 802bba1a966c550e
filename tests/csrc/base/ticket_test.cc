#include "csrc/base/ticket.h"

#include <atomic>
#include <thread>

#include "tests/csrc/ranks.h"

namespace taco {
namespace {

using namespace taco::testing;

TEST_CASE("a ticket is pending, then done or failed, once") {
  Ticket ticket;
  CHECK_FALSE(ticket.isDone());
  CHECK_FALSE(ticket.error());
  CHECK_FALSE(ticket.wait(Deadline::after(Millis(2))));
  CHECK(ticket.sourceRank() == -1);
  ticket.setSourceRank(3);
  CHECK(ticket.sourceRank() == 3);

  ticket.complete();
  CHECK(ticket.isDone());
  CHECK(ticket.wait(Deadline::never()));
  ticket.fail(Error(ErrorCode::kTimeout, "too late"));
  CHECK_FALSE(ticket.error());

  Ticket failed;
  failed.fail(Error(ErrorCode::kPeerFailed, "rank 2 died", 2));
  failed.complete();
  failed.fail(Error(ErrorCode::kAborted, "second"));
  REQUIRE(failed.error());
  CHECK(failed.error()->code() == ErrorCode::kPeerFailed);
  CHECK(failed.error()->rank() == 2);
  CHECK(failed.error()->what() == std::string("rank 2 died"));
  CHECK(failed.wait(Deadline::after(Millis(1))));  // does not throw
}

TEST_CASE("callbacks run once, in order, before and after, without a lock") {
  Ticket ticket;
  std::string calls;
  ticket.onDone([&](const Ticket& t) {
    calls += t.isDone() ? "a" : "?";  // takes the ticket's lock
    const_cast<Ticket&>(t).onDone([&](const Ticket&) { calls += "n"; });
  });
  ticket.onDone([&](const Ticket&) { calls += "b"; });
  CHECK(calls.empty());
  ticket.complete();
  CHECK(calls == "anb");
  ticket.onDone([&](const Ticket&) { calls += "c"; });
  CHECK(calls == "anbc");
  ticket.complete();
  CHECK(calls == "anbc");
}

TEST_CASE("finishing races with registering, waiting and finishing, and nothing is lost") {
  for (int round = 0; round < 300; ++round) {
    const TicketPtr ticket = std::make_shared<Ticket>();
    std::atomic<int> calls{0};
    std::atomic<int> ready{0};
    runRanks(5, [&](int rank) {
      ++ready;
      while (ready.load() < 5) std::this_thread::yield();
      if (rank == 0) ticket->complete();
      if (rank == 1) ticket->fail(Error(ErrorCode::kAborted, "abort"));
      if (rank >= 3) ticket->onDone([&](const Ticket&) { ++calls; });
      expect(ticket->wait(Deadline::after(Millis(60000))), "never done");
    });
    CHECK(ticket->isDone());
    CHECK(calls.load() == 2);
  }
}

TEST_CASE("a callback may wait for another ticket") {
  Ticket first;
  Ticket second;
  std::thread other([&] { second.complete(); });
  bool waited = false;
  first.onDone([&](const Ticket&) { waited = second.wait(Deadline::after(Millis(60000))); });
  first.complete();
  CHECK(waited);
  other.join();
}

TEST_CASE("a callback may drop the last handle of its ticket") {
  TicketPtr ticket = std::make_shared<Ticket>();
  TicketPtr finishing = ticket;
  ticket->onDone([&ticket](const Ticket&) { ticket.reset(); });
  ticket.reset();
  finishing->complete();
  CHECK(finishing.use_count() == 1);
}

}  // namespace
}  // namespace taco
