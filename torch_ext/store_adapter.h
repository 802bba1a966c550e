// c10d's store as the key-value store of the engine.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "csrc/base/format.h"
#include "csrc/topology/key_value_store.h"
#include "torch_ext/errors.h"
#include "torch_ext/store_connection.h"

namespace taco {

// Stores written in Python take the GIL themselves, so callers must not hold it.
//
// destroy_process_group() followed by init_process_group() may give the new group the old one's
// prefix in a store that still holds the old one's keys. So each rank counts, in the store, how
// many groups it has made under this prefix, and the count is part of every key.
class StoreAdapter final : public KeyValueStore {
 public:
  StoreAdapter(const c10::intrusive_ptr<c10d::Store>& store, int rank)
      : connection_(StoreConnection::of(store)), store_(store) {
    if (connection_) prefix_ = prefixOf(store);
    countKey_ = str(prefix_, "groups made by rank ", rank);
    prefix_ += str(countOfGroups(1), "/");
  }

  // The group was not made: a second try shall find the ranks that are still in their first.
  void forgetGroup() { countOfGroups(-1); }

  void set(const std::string& name, const std::string& value) override {
    const std::string key = prefix_ + name;
    ask("write", key, [&](c10d::Store& store) { store.set(key, value); });
  }

  std::string get(const std::string& name, const Deadline& deadline) override {
    if (!connection_) return waitAndGet(prefix_ + name, deadline);
    Millis pause{0};
    for (int round = 0;; ++round) {
      if (auto value = peek(name)) return *value;
      if (deadline.expired()) throw nobodyWrote(prefix_ + name, deadline);
      // Ranks come together within milliseconds, or one is late and the store is to have its peace.
      pause = round < kQuickRounds ? kFirstPause : std::min(2 * pause, kLongestPause);
      std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, deadline.remaining(pause)));
    }
  }

  std::optional<std::string> peek(const std::string& name) override {
    const std::string key = prefix_ + name;
    std::optional<std::string> value;
    ask("read", key, [&](c10d::Store& store) {
      if (store.check({key})) value = store.get_to_str(key);
    });
    return value;
  }

  int64_t add(const std::string& name, int64_t amount) override {
    const std::string key = prefix_ + name;
    int64_t sum = 0;
    ask("add to", key, [&](c10d::Store& store) { sum = store.add(key, amount); });
    return sum;
  }

 private:
  static constexpr int kQuickRounds = 20;
  static constexpr Millis kFirstPause{1};
  static constexpr Millis kLongestPause{100};

  int64_t countOfGroups(int64_t change) {
    int64_t count = 0;
    ask("add to", countKey_, [&](c10d::Store& store) { count = store.add(countKey_, change); });
    return count;
  }

  // A file or a store of the user's own: nobody else's calls wait behind ours.
  std::string waitAndGet(const std::string& key, const Deadline& deadline) {
    const auto left = std::chrono::ceil<Millis>(deadline.remaining(std::chrono::hours(24)));
    try {
      store_->wait({key}, std::max(left, Millis(1)));  // 0 would mean the store's own default
      return store_->get_to_str(key);
    } catch (...) {
      if (deadline.expired()) throw nobodyWrote(key, deadline);
      throw unanswered("read", key, currentError().what());
    }
  }

  void ask(const char* verb, const std::string& key, const StoreConnection::Call& call) {
    try {
      if (connection_) {
        connection_->ask(call);
      } else {
        call(*store_);
      }
    } catch (...) {
      throw unanswered(verb, key, currentError().what());
    }
  }

  static Error nobodyWrote(const std::string& key, const Deadline& deadline) {
    return Error(ErrorCode::kTimeout, str("nobody wrote the key '", key, "' to the store within ",
                                          deadline.budget().count(), " ms"));
  }

  static Error unanswered(const char* verb, const std::string& key, const std::string& why) {
    return Error(ErrorCode::kPeerFailed,
                 str("could not ", verb, " the key '", key,
                     "' in the store that the group was given (does the process that serves it, "
                     "usually rank 0's, still live?): ",
                     why));
  }

  const std::shared_ptr<StoreConnection> connection_;  // null: `store_` is used itself
  const c10::intrusive_ptr<c10d::Store> store_;
  std::string countKey_;
  std::string prefix_;  // of every key
};

}  // namespace taco
