// Connections to a TCPStore, shared by the groups of this process.
#pragma once

#include <sys/types.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace taco {

// A TCPStore has one connection, which a waiting get() keeps for itself, so a group must not use the
// user's. Nor may it have one of its own for good: torch asks for the name of the server's address
// whenever it connects, and where no name server answers that takes 5 s. So the groups borrow: there
// are as many connections as were ever in use at once, mostly one. They close with the last group.
class StoreConnections {
 public:
  // Those to the server of `store`. Null if no TCPStore lies below its prefixes: such a store is used
  // as it is.
  static std::shared_ptr<StoreConnections> of(const c10::intrusive_ptr<c10d::Store>& store);

  explicit StoreConnections(c10::intrusive_ptr<c10d::Store> origin);
  StoreConnections(const StoreConnections&) = delete;

  // A connection that nobody uses. Throws Error(kPeerFailed) if the server does not answer, at once
  // after giveUp().
  c10::intrusive_ptr<c10d::Store> borrow();
  void giveBack(c10::intrusive_ptr<c10d::Store> connection);
  // A connection broke: the server has gone, and to connect anew would only wait for it.
  void giveUp();

 private:
  const c10::intrusive_ptr<c10d::Store> origin_;  // lives, so that its address stays its own
  const pid_t creator_;
  std::mutex mutex_;
  std::vector<c10::intrusive_ptr<c10d::Store>> idle_;  // guarded by mutex_
  bool lost_ = false;                                  // guarded by mutex_
};

// What the prefix stores around the innermost store put before a key.
std::string prefixOf(const c10::intrusive_ptr<c10d::Store>& store);

}  // namespace taco
