// One connection to a TCPStore for all groups of this process.
#pragma once

#include <sys/types.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace taco {

// A TCPStore has one connection, which a waiting get() keeps for itself, so a group must not use the
// user's. Nor can each have its own: torch asks for the name of the server's address whenever it
// connects, and where no name server answers that takes 5 s a group. So all groups of a process share
// one, on which nobody ever waits: every call is a single question, asked under a lock. It closes
// with the last group.
class StoreConnection : public std::enable_shared_from_this<StoreConnection> {
 public:
  using Call = std::function<void(c10d::Store&)>;

  // The one to the server of `store`. Null if no TCPStore lies below its prefixes: such a store is used
  // as it is.
  static std::shared_ptr<StoreConnection> of(const c10::intrusive_ptr<c10d::Store>& store);

  explicit StoreConnection(c10::intrusive_ptr<c10d::Store> origin);
  StoreConnection(const StoreConnection&) = delete;

  // Runs `call`, which asks the store one thing; connects first if nobody has. After a call that
  // threw, the server counts as gone and every further one throws Error(kPeerFailed) at once: to
  // connect anew would only wait for it.
  //
  // torch's client waits for an answer as long as it takes, which is for ever if the network is
  // gone; so the call runs on a thread of its own, and is left to itself after `patience`
  // (Error(kPeerFailed)): it must own all that it touches.
  void ask(const Call& call, std::chrono::milliseconds patience);

 private:
  const c10::intrusive_ptr<c10d::Store> origin_;  // lives, so that its address stays its own
  const pid_t creator_;
  struct Answer;
  void answer(const Call& call, Answer& answer);

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  bool busy_ = false;       // a call is under way: the connection is its own
  bool abandoned_ = false;  // nobody waits for it any more
  c10::intrusive_ptr<c10d::Store> connection_;
  bool lost_ = false;
};

// What the prefix stores around the innermost store put before a key.
std::string prefixOf(const c10::intrusive_ptr<c10d::Store>& store);

}  // namespace taco
