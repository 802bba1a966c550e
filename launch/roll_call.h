#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace taco {

// A key did not appear while the store was patient.
class RollCallTimeout : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The three verbs of a rendezvous store that the roll call needs; c10d's store behind it.
class RollCallStore {
 public:
  virtual ~RollCallStore() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits until the key is there; throws RollCallTimeout when that takes too long.
  virtual std::string get(const std::string& key) = 0;
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
};

struct Member {
  int rank = 0;
  int worldSize = 1;
  std::string host;
  int processId = 0;
  std::string row;  // of the decision table
};

// Every process of the job calls it once, after the store is there and before the group is made.
// Returns when all `worldSize` ranks are there. Two processes with one rank, or with different
// world sizes, are a LaunchError (E3) on every one of them, and both hosts are named; a rank that
// does not come is named in a RollCallTimeout when the store's patience ends. A few operations a
// process, whatever the world size.
void rollCall(RollCallStore& store, const Member& member);

}  // namespace taco
