// One connection to a TCPStore for all groups of this process.
#pragma once

#include <sys/types.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

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
class StoreConnection {
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
  void ask(const Call& call);

 private:
  const c10::intrusive_ptr<c10d::Store> origin_;  // lives, so that its address stays its own
  const pid_t creator_;
  std::mutex mutex_;  // guards all below, and the use of the connection
  c10::intrusive_ptr<c10d::Store> connection_;
  bool lost_ = false;
};

// What the prefix stores around the innermost store put before a key.
std::string prefixOf(const c10::intrusive_ptr<c10d::Store>& store);

}  // namespace taco
