#include "csrc/engine/lane.h"

#include <pthread.h>
#include <unistd.h>

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
  // Called with `busy` and `executing` set by the caller, and without the lock; clears them.
  std::optional<Error> execute(const Task& task);
  void ensureThread();  // with the lock
  void threadMain();
  void stop(const Error& why);

  std::mutex mutex;  // guards all below but the last two
  std::condition_variable changed;
  std::deque<Queued> queue;
  bool busy = false;          // somebody executes a task,
  std::thread::id executing;  // and who
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

TicketPtr Lane::runNow(Task task) {
  // A copy: a callback of this ticket may destroy the lane.
  const std::shared_ptr<State> state = state_;
  const TicketPtr ticket = std::make_shared<Ticket>();
  {
    std::unique_lock<std::mutex> lock(state->mutex);
    if (!state->stopped && !state->busy && state->queue.empty()) {
      state->busy = true;
      state->executing = std::this_thread::get_id();
      lock.unlock();
      finish(ticket, state->execute(task));
      return ticket;
    }
  }
  state->enqueue({std::move(task), ticket});
  ticket->wait(Deadline::never());  // the task has a deadline of its own
  return ticket;
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
    refused = stopped;
    if (!refused) {
      queue.push_back(queued);
      ensureThread();
      changed.notify_all();
    }
  }
  if (refused) queued.ticket->fail(*refused);
}

std::optional<Error> Lane::State::execute(const Task& task) {
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
  std::lock_guard<std::mutex> lock(mutex);
  busy = false;
  executing = {};
  changed.notify_all();
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
      executing = std::this_thread::get_id();
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

bool Lane::drain(const Deadline& deadline) {
  State& state = *state_;
  std::unique_lock<std::mutex> lock(state.mutex);
  while (state.busy || !state.queue.empty()) {
    if (state.stopped || deadline.expired()) return false;
    state.changed.wait_for(lock, deadline.remaining(std::chrono::seconds(1)));
  }
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
    if (!stopped) stopped = why;
    dropped.swap(queue);
    changed.notify_all();
    changed.wait(lock, [this] { return !busy || executing == std::this_thread::get_id(); });
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
