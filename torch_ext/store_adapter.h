// c10d's store as the key-value store of the engine.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <atomic>
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
  // `patience`: how long the store may take for an answer while the group is made.
  StoreAdapter(const c10::intrusive_ptr<c10d::Store>& store, int rank, Millis patience)
      : patienceMs_(patience.count() > 0 ? patience.count() : kMostPatience.count()),
        connection_(StoreConnection::of(store)), store_(store) {
    if (connection_) prefix_ = prefixOf(store);
    countKey_ = str(prefix_, "groups made by rank ", rank);
    prefix_ += str(countOfGroups(1), "/");
  }

  // The group was not made: a second try shall find the ranks that are still in their first.
  void forgetGroup() { countOfGroups(-1); }

  void set(const std::string& name, const std::string& value) override {
    const std::string key = prefix_ + name;
    ask("write", key, [key, value](c10d::Store& store) { store.set(key, value); });
  }

  std::string get(const std::string& name, const Deadline& deadline) override {
    if (!connection_) return waitAndGet(prefix_ + name, deadline);
    Millis pause{0};
    for (int round = 0;; ++round) {
      if (auto value = peekWithin(name, deadline)) return *value;
      if (deadline.expired()) throw nobodyWrote(prefix_ + name, deadline);
      // Ranks come together within milliseconds, or one is late and the store is to have its peace.
      pause = round < kQuickRounds ? kFirstPause : std::min(2 * pause, kLongestPause);
      std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, deadline.remaining(pause)));
    }
  }

  std::optional<std::string> peek(const std::string& name) override {
    return peekWithin(name, Deadline::never());
  }


  int64_t add(const std::string& name, int64_t amount) override {
    const std::string key = prefix_ + name;
    const auto sum = std::make_shared<int64_t>(0);
    ask("add to", key, [key, sum, amount](c10d::Store& store) { *sum = store.add(key, amount); });
    return *sum;
  }

  void limitCalls(Millis patience) override { patienceMs_ = patience.count(); }

 private:
  static constexpr int kQuickRounds = 20;
  static constexpr Millis kMostPatience{24 * 3600 * 1000};
  static constexpr Millis kLeastPatience{500};  // at its deadline a busy store may still answer
  static constexpr Millis kFirstPause{1};
  static constexpr Millis kLongestPause{100};

  std::optional<std::string> peekWithin(const std::string& name, const Deadline& deadline) {
    const std::string key = prefix_ + name;
    const auto value = std::make_shared<std::optional<std::string>>();
    ask("read", key, [key, value](c10d::Store& store) {
      if (store.check({key})) *value = store.get_to_str(key);
    }, deadline);
    return *value;
  }

  int64_t countOfGroups(int64_t change) {
    const auto count = std::make_shared<int64_t>(0);
    ask("add to", countKey_, [key = countKey_, count, change](c10d::Store& store) {
      *count = store.add(key, change);
    });
    return *count;
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

  void ask(const char* verb, const std::string& key, const StoreConnection::Call& call,
           const Deadline& deadline = Deadline::never()) {
    try {
      if (connection_) {
        Millis patience(patienceMs_.load());
        if (!deadline.isNever()) {
          patience = std::chrono::ceil<Millis>(deadline.remaining(patience)) + kLeastPatience;
        }
        connection_->ask(call, patience);
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

  std::atomic<int64_t> patienceMs_;  // relaxed: of one call
  const std::shared_ptr<StoreConnection> connection_;  // null: `store_` is used itself
  const c10::intrusive_ptr<c10d::Store> store_;
  std::string countKey_;
  std::string prefix_;  // of every key
};

}  // namespace taco
