#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <condition_variable>
#include <string>

#include "csrc/base/deadline.h"

namespace taco {

// Where the ranks of a group meet before they are connected: c10d's store, MPI, or a map in
// memory behind it. Each group has a name space of its own, so keys need no prefix.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits until somebody sets `key`; throws Error(kTimeout) at the deadline.
  virtual std::string get(const std::string& key, const Deadline& deadline) = 0;
  // The value if somebody has set it already.
  virtual std::optional<std::string> peek(const std::string& key) = 0;
  // Adds to a counter and returns the new value.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
  // From now on a call that the store does not answer within `patience` throws Error(kPeerFailed), as
  // far as the store is a remote one.
  virtual void limitCalls(Millis patience) { (void)patience; }
};

// For ranks that are threads of one process (tests, perf).
class MemoryStore : public KeyValueStore {
 public:
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, const Deadline& deadline) override;
  std::optional<std::string> peek(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;

 private:
  std::mutex mutex_;  // guards both maps
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::map<std::string, int64_t> counters_;
};

}  // namespace taco
