#include "csrc/p2p/point_to_point.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "csrc/base/format.h"
#include "csrc/base/process_generation.h"
#include "csrc/p2p/messenger.h"

namespace taco {
namespace {

using std::chrono::nanoseconds;

// The longest sleep while something is pending (the abort signal wants to be seen), and after a
// while without anything.
constexpr Millis kBusySleep{20};
constexpr Millis kIdleSleep{500};
constexpr Millis kIdleAfter{200};

constexpr int kMostYields = 1000;

}  // namespace

// The posting threads and our own take turns at the messenger and its transport; our own sleeps
// outside of the lock, so a message goes out on the thread that posts it.
struct PointToPoint::State {
  State(std::unique_ptr<Transport> theTransport, const AbortSignal& theAbort, std::string theGroup)
      : abort(theAbort),
        group(std::move(theGroup)),
        transport(std::move(theTransport)),
        messenger(*transport, group) {}

  // Takes the lock, runs `body`, and tells the tickets that it decided after the lock is released.
  template <typename Body>
  void withMessenger(const Body& body) {
    std::vector<Messenger::Finished> finished;
    {
      waiting.fetch_add(1);
      std::lock_guard<std::mutex> lock(mutex);
      waiting.fetch_sub(1);
      body();
      finished = messenger.takeFinished();
      if (closing && !messenger.hasSendsUnderWay()) sendsGone.notify_all();
    }
    for (Messenger::Finished& one : finished) one.tell();
  }

  void checkPeer(const char* what, int peer, int lowest) const {
    if (processGeneration() != creator) {
      throw Error(ErrorCode::kAborted,
                  str(what, " was called in a process forked after the group '", group,
                      "' was made; call it in the process that made the group"));
    }
    if (peer < lowest || peer >= transport->size()) {
      throw Error(ErrorCode::kInvalidArgument,
                  str(what, ": there is no rank ", peer, " in group '", group,
                      "', its ranks are 0 to ", transport->size() - 1));
    }
  }

  void failLocked(const Error& why) {
    messenger.fail(why);
    transport->fail(why);  // before any ticket is told: the transport lets go of the memory
  }

  void startThread(const std::shared_ptr<State>& self) {
    if (thread || stopping || messenger.failure()) return;
    thread = new std::thread([self] { self->run(); });
  }

  // The sleeping thread must not oversleep the deadline of what was just posted.
  void shortenSleep() {
    if (messenger.isIdle()) return;
    const auto next = Clock::now() + messenger.untilNextDeadline(kBusySleep);
    if (next < sleepsUntil) transport->wake();
  }

  template <typename Kind>
  TicketPtr post(const std::shared_ptr<State>& self, std::shared_ptr<Kind> operation,
                 void (Messenger::*hand)(const std::shared_ptr<Kind>&)) {
    const TicketPtr ticket = operation->ticket;
    withMessenger([&] {
      startThread(self);
      (messenger.*hand)(operation);
      shortenSleep();
    });
    return ticket;
  }

  void run();

  const AbortSignal& abort;
  const std::string group;
  const uint64_t creator = processGeneration();

  std::mutex mutex;  // guards all below except `transport->waitReady()`, wake() and the counters
  std::unique_ptr<Transport> transport;
  Messenger messenger;
  bool closing = false;   // somebody waits for `sendsGone`
  bool stopping = false;  // the thread is to end
  Clock::time_point sleepsUntil = Clock::time_point::min();
  std::condition_variable sendsGone;
  std::thread* thread = nullptr;  // a pointer: a forked child must be able to leave it alone
  std::atomic<int> waiting{0};    // threads that want the lock now; a hint, it orders nothing
};

void PointToPoint::State::run() {
  Clock::time_point busyAt = Clock::now();
  for (;;) {
    bool moved = false;
    bool stop = false;
    nanoseconds sleep{0};
    withMessenger([&] {
      if (abort.raised() && !messenger.failure()) failLocked(*abort.reason());
      stop = stopping || messenger.failure();  // nothing can happen after a failure
      if (stop) return;
      try {
        moved = messenger.progress();
        messenger.tend();
      } catch (const std::exception& error) {  // memory that ran out: nobody else could catch it
        failLocked(Error(ErrorCode::kSystem, error.what(), transport->rank()));
        stop = true;
        return;
      }
      if (moved) return;
      const auto now = Clock::now();
      if (!messenger.isIdle()) busyAt = now;
      sleep = now - busyAt > kIdleAfter ? nanoseconds(kIdleSleep)
                                        : messenger.untilNextDeadline(kBusySleep);
      sleepsUntil = now + sleep;
    });
    if (stop) return;
    if (!moved) {
      transport->waitReady(sleep);
    } else {
      // A mutex is not fair: in the middle of a large transfer this thread would take it again and
      // again before one that wants to post has even woken up.
      for (int i = 0; waiting.load() > 0 && i < kMostYields; ++i) std::this_thread::yield();
    }
  }
}

PointToPoint::PointToPoint(std::unique_ptr<Transport> transport, const AbortSignal& abort,
                           std::string group)
    : state_(std::make_shared<State>(std::move(transport), abort, std::move(group))) {}

PointToPoint::~PointToPoint() {
  if (processGeneration() != state_->creator) {
    // The thread does not exist here, the mutex may be locked by it for ever, and what pending
    // operations keep alive is not this process's to end: forget it all.
    new std::shared_ptr<State>(std::move(state_));
    return;
  }
  close(Millis(1));
}

TicketPtr PointToPoint::send(int peer, int64_t tag, const void* data, size_t bytes,
                             const Deadline& deadline, std::shared_ptr<void> keepAlive) {
  state_->checkPeer("send", peer, 0);
  auto operation = std::make_shared<SendOperation>();
  operation->peer = peer;
  operation->tag = tag;
  operation->data = static_cast<char*>(const_cast<void*>(data));
  operation->bytes = bytes;
  operation->deadline = deadline;
  operation->keepAlive = std::move(keepAlive);
  return state_->post(state_, std::move(operation), &Messenger::send);
}

TicketPtr PointToPoint::receive(int peer, int64_t tag, void* data, size_t bytes,
                                const Deadline& deadline, std::shared_ptr<void> keepAlive) {
  state_->checkPeer("receive", peer, kAnySource);
  auto operation = std::make_shared<ReceiveOperation>();
  operation->peer = peer;
  operation->tag = tag;
  operation->data = static_cast<char*>(data);
  operation->bytes = bytes;
  operation->deadline = deadline;
  operation->keepAlive = std::move(keepAlive);
  return state_->post(state_, std::move(operation), &Messenger::receive);
}

void PointToPoint::fail(const Error& why) {
  if (processGeneration() != state_->creator) return;
  state_->withMessenger([&] { state_->failLocked(why); });
}

void PointToPoint::close(Millis maxWait) {
  State& state = *state_;
  if (processGeneration() != state.creator) return;
  const Deadline deadline = Deadline::after(std::max(maxWait, Millis(1)));
  std::thread* thread = nullptr;
  {
    std::unique_lock<std::mutex> lock(state.mutex);
    if (state.thread && !state.stopping) {
      state.closing = true;
      while (state.messenger.hasSendsUnderWay() && !state.messenger.failure() &&
             !deadline.expired()) {
        state.sendsGone.wait_for(lock, deadline.remaining(Millis(100)));
      }
    }
    state.stopping = true;
    thread = std::exchange(state.thread, nullptr);
    state.transport->wake();
  }
  if (thread) {
    // A ticket's callback may close us on our own thread, which cannot wait for itself.
    if (thread->get_id() == std::this_thread::get_id()) {
      thread->detach();
    } else {
      thread->join();
    }
    delete thread;
  }
  state.withMessenger([&] {
    state.messenger.fail(
        Error(ErrorCode::kAborted, str("the group '", state.group,
                                       "' was closed (destroy_process_group) before it was done")));
    const auto left = std::chrono::ceil<Millis>(deadline.remaining(maxWait));
    state.transport->close(std::max(left, Millis(1)));
  });
}

uint64_t PointToPoint::bytesSent() const { return state_->transport->bytesSent(); }

}  // namespace taco
