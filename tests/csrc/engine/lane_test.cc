#include "csrc/engine/lane.h"

#include <dirent.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <optional>
#include <string>

#include "csrc/base/format.h"
#include "tests/csrc/forked_ranks.h"
#include "tests/csrc/ranks.h"

namespace taco {
namespace {

using namespace taco::testing;
using Catch::Matchers::ContainsSubstring;

const Error kEnd(ErrorCode::kAborted, "the end");

// A door that a task waits at, so that a test can say in which order things happen.
class Door {
 public:
  void open() { opened_.complete(); }
  void pass() const {
    if (!opened_.wait(Deadline::after(Millis(60000)))) {
      throw Error(ErrorCode::kTimeout, "the door stayed shut");
    }
  }

 private:
  Ticket opened_;
};

// runNow() with its outcome as a ticket that is done.
template <typename Task>
TicketPtr runNow(Lane& lane, Task task) {
  const TicketPtr ticket = std::make_shared<Ticket>();
  const std::optional<Error> why = lane.runNow(task);
  why ? ticket->fail(*why) : ticket->complete();
  return ticket;
}

bool waitFor(const TicketPtr& ticket) { return ticket->wait(Deadline::after(Millis(60000))); }

int numThreads() {
  int count = 0;
  DIR* const folder = ::opendir("/proc/self/task");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count - 2;
}

bool isAsleep(pid_t thread) {
  std::ifstream stat(str("/proc/self/task/", thread, "/stat"));
  std::string number, name, state;
  stat >> number >> name >> state;  // the name has no blanks
  return state == "S";
}

TEST_CASE("tasks run one after the other, in the order they were submitted") {
  Lane lane;
  std::vector<int> order;
  std::atomic<int> inside{0};
  bool overlapped = false;
  std::vector<TicketPtr> tickets;
  auto task = [&](int i) {
    return [&, i] {
      overlapped |= ++inside != 1;
      order.push_back(i);
      --inside;
    };
  };
  for (int i = 0; i < 1000; ++i) {
    tickets.push_back(i % 7 == 3 ? runNow(lane, task(i)) : lane.runLater(task(i)));
    if (i % 7 == 3) REQUIRE(tickets.back()->isDone());
  }
  CHECK(lane.drain(Deadline::after(Millis(60000))));
  for (const TicketPtr& ticket : tickets) CHECK(waitFor(ticket));
  CHECK_FALSE(overlapped);
  REQUIRE(order.size() == 1000);
  for (int i = 0; i < 1000; ++i) CHECK(order[static_cast<size_t>(i)] == i);
  lane.stop(kEnd);
}

TEST_CASE(
    "a synchronous task runs on its caller's thread where the lane is idle, else after the "
    "others") {
  const int before = numThreads();
  Lane lane;
  std::thread::id ranOn;
  lane.runNow([&] { ranOn = std::this_thread::get_id(); });
  CHECK(ranOn == std::this_thread::get_id());
  CHECK(numThreads() == before);  // no thread for callers who run

  Door door;
  std::string order;
  const TicketPtr first = lane.runLater([&] {
    door.pass();
    order += "a";
  });
  const TicketPtr second = lane.runLater([&] { order += "b"; });
  std::atomic<pid_t> callerId{0};
  std::thread caller([&] {
    callerId = ::gettid();
    const TicketPtr third = runNow(lane, [&] {
      ranOn = std::this_thread::get_id();
      order += "c";
    });
    CHECK(third->isDone());
  });
  const std::thread::id callersThread = caller.get_id();
  while (callerId == 0 || !isAsleep(callerId)) std::this_thread::yield();
  door.open();  // only now: a lane that is idle again would run the third on its caller's thread
  caller.join();
  CHECK(order == "abc");
  CHECK(ranOn != callersThread);
  CHECK(waitFor(first));
  CHECK(waitFor(second));
  lane.stop(kEnd);
  CHECK(numThreads() == before);
}

TEST_CASE(
    "a task that throws fails its ticket, and the handler hears of it before the next begins") {
  Lane lane;
  std::string events;
  lane.setErrorHandler([&](const Error& why) { events += str("[", why.what(), "]"); });
  const TicketPtr taco = runNow(lane, [] { throw Error(ErrorCode::kPeerFailed, "rank 3 died", 3); });
  const TicketPtr standard = lane.runLater([] { throw std::runtime_error("bad alloc"); });
  const TicketPtr strange = lane.runLater([] { throw 7; });
  const TicketPtr fine = lane.runLater([&] { events += "fine"; });
  CHECK(waitFor(fine));
  CHECK(taco->error()->rank() == 3);
  CHECK(taco->error()->code() == ErrorCode::kPeerFailed);
  REQUIRE(waitFor(standard));
  CHECK(standard->error()->code() == ErrorCode::kSystem);
  REQUIRE(waitFor(strange));
  CHECK(strange->error()->code() == ErrorCode::kSystem);
  CHECK_FALSE(fine->error());
  CHECK_THAT(events, ContainsSubstring("[rank 3 died][bad alloc]["));
  CHECK_THAT(events, Catch::Matchers::EndsWith("]fine"));
  lane.stop(kEnd);
}

TEST_CASE("a callback may wait for a later operation of the same lane, and issue one") {
  Lane lane;
  Door door;
  std::atomic<int> waited{0};
  const TicketPtr first = lane.runLater([&] { door.pass(); });
  const TicketPtr second = lane.runLater([] {});
  first->onDone([&](const Ticket&) {
    if (waitFor(second)) ++waited;
    const TicketPtr inner = lane.runLater([] {});
    if (waitFor(inner)) ++waited;
    if (!lane.runNow([] {})) ++waited;
  });
  door.open();
  CHECK(lane.drain(Deadline::after(Millis(60000))));
  // The callback may still run; its thread is joined by stop().
  while (waited.load() < 3) std::this_thread::yield();
  lane.stop(kEnd);
  CHECK(waited.load() == 3);
}

TEST_CASE("callbacks that wait inside each other each get a thread, and no more") {
  const int before = numThreads();
  Lane lane;
  constexpr int kDepth = 5;
  Door door;
  std::atomic<int> waited{0};
  std::vector<TicketPtr> tickets;
  for (int i = 0; i < kDepth; ++i) tickets.push_back(lane.runLater([&] { door.pass(); }));
  for (int i = 0; i + 1 < kDepth; ++i) {
    tickets[static_cast<size_t>(i)]->onDone([&, i](const Ticket&) {
      if (waitFor(tickets[static_cast<size_t>(i) + 1])) ++waited;
    });
  }
  Door last;
  tickets.back()->onDone([&](const Ticket&) { last.pass(); });
  door.open();
  for (const TicketPtr& ticket : tickets) CHECK(waitFor(ticket));
  CHECK(numThreads() - before <= kDepth + 1);
  last.open();
  lane.stop(kEnd);
  CHECK(waited.load() == kDepth - 1);
  CHECK(numThreads() == before);
}

TEST_CASE("a callback may wait for an operation that was issued before") {
  Lane lane;
  const TicketPtr first = lane.runLater([] {});
  std::atomic<bool> waited{false};
  const TicketPtr second = lane.runLater([] {});
  second->onDone([&](const Ticket&) { waited = waitFor(first); });
  CHECK(waitFor(second));
  lane.stop(kEnd);
  CHECK(waited.load());
}

TEST_CASE("stopping fails what is queued, refuses what comes, and waits for what runs") {
  Lane lane;
  Door inside;
  Door door;
  bool finished = false;
  const TicketPtr running = lane.runLater([&] {
    inside.open();
    door.pass();
    finished = true;
  });
  bool ran = false;
  const TicketPtr queued = lane.runLater([&] { ran = true; });
  inside.pass();
  std::atomic<bool> told{false};
  queued->onDone([&](const Ticket& ticket) { told = ticket.error().has_value(); });
  std::thread opener([&] {
    while (lane.runLater([] {})->error() == std::nullopt) std::this_thread::yield();
    door.open();
  });
  lane.stop(kEnd);
  opener.join();
  CHECK(running->isDone());
  CHECK(finished);
  CHECK_FALSE(running->error());
  CHECK_FALSE(ran);
  CHECK(told.load());
  CHECK(queued->error()->what() == std::string("the end"));
  for (const TicketPtr& late :
       {lane.runLater([&] { ran = true; }), runNow(lane, [&] { ran = true; })}) {
    REQUIRE(late->error());
    CHECK(late->error()->code() == ErrorCode::kAborted);
  }
  CHECK_FALSE(ran);
  lane.stop(Error(ErrorCode::kAborted, "again"));
}

TEST_CASE("a callback may stop the lane, and destroy it") {
  for (const bool caller : {false, true}) {
    for (int round = 0; round < 50; ++round) {
      auto lane = std::make_unique<Lane>();
      std::atomic<bool> destroyed{false};
      Door door;
      auto endIt = [&](const Ticket&) {
        lane->stop(kEnd);
        lane.reset();
        destroyed = true;
      };
      TicketPtr ticket;
      if (caller) {
        ticket = runNow(*lane, [] {});
        ticket->onDone(endIt);
      } else {
        ticket = lane->runLater([&] { door.pass(); });
        lane->runLater([] {});
        ticket->onDone(endIt);
        door.open();
      }
      REQUIRE(eventually([&] { return destroyed.load(); }));
      CHECK(waitFor(ticket));
    }
  }
}

TEST_CASE("a task may stop its own lane") {
  Lane lane;
  CHECK_FALSE(lane.runNow([&] { lane.stop(kEnd); }));
  CHECK(lane.runLater([] {})->error());

  Lane other;
  const TicketPtr later = other.runLater([&] { other.stop(kEnd); });
  CHECK(waitFor(later));
  CHECK_FALSE(later->error());
}

TEST_CASE("a lane that was not stopped stops when it is destroyed") {
  TicketPtr queued;
  {
    Lane lane;
    lane.runLater([] {});
    for (int i = 0; i < 10; ++i) queued = lane.runLater([] {});
  }
  CHECK(queued->isDone());  // one way or the other
}

TEST_CASE("draining waits for everything, up to its deadline") {
  Lane lane;
  CHECK(lane.drain(Deadline::never()));
  Door door;
  lane.runLater([&] { door.pass(); });
  CHECK_FALSE(lane.drain(Deadline::after(Millis(5))));
  door.open();
  CHECK(lane.drain(Deadline::after(Millis(60000))));
  lane.stop(kEnd);
}

TEST_CASE("many threads submit, nothing is lost, and each finds its own in order") {
  Lane lane;
  std::vector<std::pair<int, int>> ran;  // (thread, number); the lane keeps the order
  runRanks(4, [&](int rank) {
    for (int i = 0; i < 2000; ++i) {
      auto task = [&ran, rank, i] { ran.emplace_back(rank, i); };
      if ((rank + i) % 3 == 0) {
        expect(!lane.runNow(task), "failed");
      } else {
        const TicketPtr ticket = lane.runLater(task);
        if (i % 5 == 0) expect(waitFor(ticket), "never done");
      }
    }
  });
  CHECK(lane.drain(Deadline::after(Millis(60000))));
  lane.stop(kEnd);
  REQUIRE(ran.size() == 8000);
  int next[4] = {0, 0, 0, 0};
  for (const auto& [rank, i] : ran) REQUIRE(i == next[rank]++);
}

TEST_CASE("submitting races with stopping, and every ticket ends") {
  for (int round = 0; round < 100; ++round) {
    Lane lane;
    std::atomic<int> executed{0};
    std::atomic<int> succeeded{0};
    runRanks(4, [&](int rank) {
      if (rank == 0) {
        while (executed.load() < 5) std::this_thread::yield();
        lane.stop(kEnd);
        return;
      }
      for (int i = 0; i < 50; ++i) {
        const TicketPtr ticket =
            rank == 1 ? runNow(lane, [&] { ++executed; }) : lane.runLater([&] { ++executed; });
        expect(waitFor(ticket), "never done");
        if (!ticket->error()) ++succeeded;
      }
    });
    CHECK(executed.load() == succeeded.load());
  }
}

TEST_CASE("a task's captures are gone when its ticket is finished") {
  Lane lane;
  std::atomic<int> gone{0};
  for (int i = 0; i < 100; ++i) {
    auto tensor = std::make_shared<int>(1);
    const std::weak_ptr<int> watch = tensor;
    const TicketPtr ticket = lane.runLater([kept = std::move(tensor)] {});
    ticket->onDone([&gone, watch](const Ticket&) { gone += watch.expired() ? 1 : 0; });
    REQUIRE(waitFor(ticket));
  }
  lane.stop(kEnd);  // callbacks run after a ticket's waiters are released
  CHECK(gone.load() == 100);
}

TEST_CASE("an idle lane sleeps") {
  Lane lane;
  CHECK(waitFor(lane.runLater([] {})));
  const std::clock_t before = std::clock();  // of the whole process
  std::this_thread::sleep_for(Millis(200));
  CHECK(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC < 0.05);
  lane.stop(kEnd);
}

TEST_CASE("a forked child destroys its copy without waiting for threads that it does not have") {
  auto lane = std::make_unique<Lane>();
  Door door;
  const TicketPtr running = lane->runLater([&] { door.pass(); });
  CHECK_FALSE(running->isDone());
  {
    ForkedRanks child(1, [&](int, ForkedRanks::Shared&) {
      lane.reset();
      return std::string("destroyed");
    });
    CHECK(child.outcome(0) == "destroyed");
  }
  door.open();
  CHECK(waitFor(running));
  CHECK(waitFor(lane->runLater([] {})));
  lane->stop(kEnd);
}

}  // namespace
}  // namespace taco
