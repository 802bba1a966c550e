#include "csrc/base/ticket.h"

namespace taco {

bool Ticket::isDone() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return done_;
}

bool Ticket::wait(const Deadline& deadline) const {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!done_) {
    if (deadline.isNever()) {
      finished_.wait(lock);
    } else if (deadline.expired()) {
      return false;
    } else {
      finished_.wait_for(lock, deadline.remaining(std::chrono::hours(1)));
    }
  }
  return true;
}

std::optional<Error> Ticket::error() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return error_;
}

void Ticket::onDone(Callback callback) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!done_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback(*this);
}

int Ticket::sourceRank() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return sourceRank_;
}

void Ticket::setSourceRank(int rank) {
  std::lock_guard<std::mutex> lock(mutex_);
  sourceRank_ = rank;
}

void Ticket::complete() { finish(std::nullopt); }

void Ticket::fail(const Error& why) { finish(why); }

void Ticket::finish(std::optional<Error> why) {
  std::vector<Callback> callbacks;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (done_) return;
    done_ = true;
    error_ = std::move(why);
    callbacks.swap(callbacks_);
    finished_.notify_all();
  }
  for (const Callback& callback : callbacks) callback(*this);
}

}  // namespace taco
