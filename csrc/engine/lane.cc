#include "csrc/engine/lane.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace taco {
namespace {

struct Queued {
  Lane::Task task;
  TicketPtr ticket;
};

void finish(const TicketPtr& ticket, const std::optional<Error>& why) {
  if (why) {
    ticket->fail(*why);
  } else {
    ticket->complete();
  }
}

}  // namespace

struct Lane::State : std::enable_shared_from_this<State> {
  void enqueue(Queued queued);
  // Enters a lane that nobody is in and nothing waits for; else returns false.
  bool enterAlone();
  void leaveAlone();
  // With the lock: whoever comes now goes through it as well.
  void share();
  // With the lock: lets callers enter alone again, if nobody is in the lane and nothing waits.
  void unshare();
  // Called with `busy` and `executing` set by the caller, and without the lock; clears them.
  std::optional<Error> execute(FunctionRef<void()> task);
  std::optional<Error> tryTask(FunctionRef<void()> task);
  void ensureThread();  // with the lock
  void threadMain();
  void stop(const Error& why);

  enum Mode : int {
    kFree,    // nobody is in the lane, nothing waits
    kAlone,   // a caller is in it that has found it free, nothing waits
    kShared,  // `busy` and `queue` tell
  };
  std::atomic<int> mode{kFree};  // into and out of kShared with the lock
  std::atomic<std::thread::id> executing{};  // who executes a task; exact for that thread itself

  std::mutex mutex;  // guards all below but the last two
  std::condition_variable changed;
  std::deque<Queued> queue;
  bool busy = false;  // somebody executes a task
  std::optional<Error> stopped;
  std::list<std::thread> threads;
  int available = 0;  // threads that wait for a task or execute one, and are in no callback
  std::function<void(const Error&)> onError;  // set before the first task
  const pid_t creatorPid = ::getpid();
};

Lane::Lane() : state_(std::make_shared<State>()) {}

Lane::~Lane() {
  if (::getpid() == state_->creatorPid) {
    state_->stop(Error(ErrorCode::kAborted, "the group was destroyed"));
    return;
  }
  // The threads do not exist here, and to destroy the condition variable would wait for them.
  static auto* const forgotten = new std::vector<std::shared_ptr<State>>;
  forgotten->push_back(std::move(state_));
}

void Lane::setErrorHandler(std::function<void(const Error&)> onError) {
  state_->onError = std::move(onError);
}

bool Lane::State::enterAlone() {
  int expected = kFree;
  if (!mode.compare_exchange_strong(expected, kAlone, std::memory_order_acquire)) return false;
  executing.store(std::this_thread::get_id(), std::memory_order_relaxed);
  return true;
}

void Lane::State::leaveAlone() {
  executing.store({}, std::memory_order_relaxed);
  int expected = kAlone;
  if (mode.compare_exchange_strong(expected, kFree, std::memory_order_release)) return;
  std::lock_guard<std::mutex> lock(mutex);  // somebody has come meanwhile
  busy = false;
  changed.notify_all();
  unshare();
}

void Lane::State::share() {
  if (mode.exchange(kShared, std::memory_order_acq_rel) == kAlone) busy = true;
}

void Lane::State::unshare() {
  if (!busy && queue.empty() && !stopped) mode.store(kFree, std::memory_order_release);
}

std::optional<Error> Lane::runNow(FunctionRef<void()> task) {
  // A copy: the task may destroy the lane.
  const std::shared_ptr<State> state = state_;
  if (state->enterAlone()) {
    const std::optional<Error> why = state->tryTask(task);
    state->leaveAlone();
    return why;
  }
  {
    std::unique_lock<std::mutex> lock(state->mutex);
    state->share();
    if (!state->stopped && !state->busy && state->queue.empty()) {
      state->busy = true;
      state->executing.store(std::this_thread::get_id());
      lock.unlock();
      return state->execute(task);
    }
  }
  const TicketPtr ticket = std::make_shared<Ticket>();
  state->enqueue({[task] { task(); }, ticket});
  ticket->wait(Deadline::never());  // the task has a deadline of its own
  return ticket->error();
}

TicketPtr Lane::runLater(Task task) {
  const TicketPtr ticket = std::make_shared<Ticket>();
  state_->enqueue({std::move(task), ticket});
  return ticket;
}

void Lane::State::enqueue(Queued queued) {
  std::optional<Error> refused;
  {
    std::lock_guard<std::mutex> lock(mutex);
    share();
    refused = stopped;
    if (!refused) {
      queue.push_back(queued);
      ensureThread();
      changed.notify_all();
    }
  }
  if (refused) queued.ticket->fail(*refused);
}

std::optional<Error> Lane::State::execute(FunctionRef<void()> task) {
  std::optional<Error> why = tryTask(task);
  std::lock_guard<std::mutex> lock(mutex);
  busy = false;
  executing.store({});
  changed.notify_all();
  unshare();
  return why;
}

std::optional<Error> Lane::State::tryTask(FunctionRef<void()> task) {
  std::optional<Error> why;
  try {
    task();
  } catch (const Error& error) {
    why = error;
  } catch (const std::exception& error) {
    why = Error(ErrorCode::kSystem, error.what());
  } catch (...) {
    why = Error(ErrorCode::kSystem, "an operation threw something that is no std::exception");
  }
  if (why && onError) onError(*why);
  return why;
}

void Lane::State::ensureThread() {
  if (available > 0) return;
  ++available;
  threads.emplace_back([self = shared_from_this()] { self->threadMain(); });
}

void Lane::State::threadMain() {
  ::pthread_setname_np(::pthread_self(), "taco-lane");
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return (!busy && !queue.empty()) || stopped; });
    if (stopped) break;
    {
      Queued next = std::move(queue.front());
      queue.pop_front();
      busy = true;
      executing.store(std::this_thread::get_id());
      lock.unlock();
      const std::optional<Error> why = execute(next.task);
      lock.lock();
      --available;
      if (!queue.empty() && !stopped) ensureThread();
      lock.unlock();
      next.task = nullptr;  // its tensors go without the lock: that may take the GIL
      finish(next.ticket, why);
    }
    lock.lock();
    ++available;
  }
  --available;
}

bool Lane::runsHere() const {
  return state_->executing.load() == std::this_thread::get_id();
}

bool Lane::drain(const Deadline& deadline) {
  State& state = *state_;
  std::unique_lock<std::mutex> lock(state.mutex);
  state.share();
  while (state.busy || !state.queue.empty()) {
    if (state.stopped || deadline.expired()) return false;
    state.changed.wait_for(lock, deadline.remaining(std::chrono::seconds(1)));
    // Whoever left may have set it free.
    state.share();
  }
  state.unshare();
  return true;
}

void Lane::stop(const Error& why) {
  const std::shared_ptr<State> state = state_;  // a dropped ticket's callback may destroy the lane
  state->stop(why);
}

void Lane::State::stop(const Error& why) {
  std::deque<Queued> dropped;
  std::list<std::thread> ending;
  {
    std::unique_lock<std::mutex> lock(mutex);
    share();
    if (!stopped) stopped = why;
    dropped.swap(queue);
    changed.notify_all();
    changed.wait(lock, [this] { return !busy || executing.load() == std::this_thread::get_id(); });
    ending.swap(threads);
  }
  for (const Queued& queued : dropped) queued.ticket->fail(why);
  dropped.clear();
  for (std::thread& thread : ending) {
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();  // ends when the task or callback that called us returns
    } else {
      thread.join();
    }
  }
}

}  // namespace taco
