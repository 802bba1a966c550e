// c10d's store as the key-value store of the engine.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "csrc/base/format.h"
#include "csrc/topology/key_value_store.h"
#include "torch_ext/errors.h"
#include "torch_ext/store_connections.h"

namespace taco {

// Stores written in Python take the GIL themselves, so callers must not hold it.
//
// destroy_process_group() followed by init_process_group() may give the new group the old one's
// prefix in a store that still holds the old one's keys. So each rank counts, in the store, how
// many groups it has made under this prefix, and the count is part of every key.
class StoreAdapter final : public KeyValueStore {
 public:
  StoreAdapter(const c10::intrusive_ptr<c10d::Store>& store, int rank)
      : connections_(StoreConnections::of(store)), store_(store) {
    if (connections_) prefix_ = prefixOf(store);
    countKey_ = str(prefix_, "groups made by rank ", rank);
    prefix_ += str(countOfGroups(1), "/");
  }

  // The group was not made: a second try shall find the ranks that are still in their first.
  void forgetGroup() { countOfGroups(-1); }

  void set(const std::string& name, const std::string& value) override {
    const std::string key = prefix_ + name;
    guarded("write", key, Deadline::never(), [&](c10d::Store& store) { store.set(key, value); });
  }

  std::string get(const std::string& name, const Deadline& deadline) override {
    const std::string key = prefix_ + name;
    std::string value;
    guarded("read", key, deadline, [&](c10d::Store& store) {
      store.wait({key}, waitingTime(deadline));
      value = store.get_to_str(key);
    });
    return value;
  }

  std::optional<std::string> peek(const std::string& name) override {
    const std::string key = prefix_ + name;
    std::optional<std::string> value;
    guarded("read", key, Deadline::never(), [&](c10d::Store& store) {
      if (store.check({key})) value = store.get_to_str(key);
    });
    return value;
  }

  int64_t add(const std::string& name, int64_t amount) override {
    const std::string key = prefix_ + name;
    int64_t sum = 0;
    guarded("add to", key, Deadline::never(),
            [&](c10d::Store& store) { sum = store.add(key, amount); });
    return sum;
  }

 private:
  int64_t countOfGroups(int64_t change) {
    int64_t count = 0;
    guarded("add to", countKey_, Deadline::never(),
            [&](c10d::Store& store) { count = store.add(countKey_, change); });
    return count;
  }

  static Millis waitingTime(const Deadline& deadline) {
    const auto left =
        std::chrono::ceil<Millis>(deadline.remaining(std::chrono::hours(24)));
    return std::max(left, Millis(1));  // 0 would mean the store's own default
  }

  template <typename Call>
  void guarded(const char* verb, const std::string& key, const Deadline& deadline, Call&& call) {
    const auto connection = connections_ ? connections_->borrow() : store_;
    try {
      call(*connection);
      if (connections_) connections_->giveBack(connection);
    } catch (...) {
      const std::string why = currentError().what();
      if (deadline.expired()) {
        if (connections_) connections_->giveBack(connection);  // a wait that timed out is over
        throw Error(ErrorCode::kTimeout,
                    str("nobody wrote the key '", key, "' to the store within ",
                        deadline.budget().count(), " ms"));
      }
      if (connections_) connections_->giveUp();
      throw Error(ErrorCode::kPeerFailed,
                  str("could not ", verb, " the key '", key,
                      "' in the store that the group was given (does the process that serves it, "
                      "usually rank 0's, still live?): ",
                      why));
    }
  }

  const std::shared_ptr<StoreConnections> connections_;  // null: `store_` is used itself
  const c10::intrusive_ptr<c10d::Store> store_;
  std::string countKey_;
  std::string prefix_;  // of every key
};

}  // namespace taco
