// c10d's store as the key-value store of the engine.
#pragma once

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

#include "csrc/base/format.h"
#include "csrc/topology/key_value_store.h"
#include "torch_ext/errors.h"

namespace taco {

// Stores written in Python take the GIL themselves, so callers must not hold it.
//
// destroy_process_group() followed by init_process_group() may give the new group the old one's
// prefix in a store that still holds the old one's keys. So each rank counts, in the store, how
// many groups it has made under this prefix, and the count is part of every key.
class StoreAdapter final : public KeyValueStore {
 public:
  StoreAdapter(const c10::intrusive_ptr<c10d::Store>& store, int rank)
      : store_(ownConnection(store)), countKey_(str("groups made by rank ", rank)) {
    prefix_ = str(countOfGroups(1), "/");
  }

  // The group was not made: a second try shall find the ranks that are still in their first.
  void forgetGroup() { countOfGroups(-1); }

  void set(const std::string& name, const std::string& value) override {
    const std::string key = prefix_ + name;
    guarded("write", key, Deadline::never(), [&] { store_->set(key, value); });
  }

  std::string get(const std::string& name, const Deadline& deadline) override {
    const std::string key = prefix_ + name;
    std::string value;
    guarded("read", key, deadline, [&] {
      store_->wait({key}, waitingTime(deadline));
      value = store_->get_to_str(key);
    });
    return value;
  }

  std::optional<std::string> peek(const std::string& name) override {
    const std::string key = prefix_ + name;
    std::optional<std::string> value;
    guarded("read", key, Deadline::never(), [&] {
      if (store_->check({key})) value = store_->get_to_str(key);
    });
    return value;
  }

  int64_t add(const std::string& name, int64_t amount) override {
    const std::string key = prefix_ + name;
    int64_t sum = 0;
    guarded("add to", key, Deadline::never(), [&] { sum = store_->add(key, amount); });
    return sum;
  }

 private:
  int64_t countOfGroups(int64_t change) {
    int64_t count = 0;
    guarded("add to", countKey_, Deadline::never(),
            [&] { count = store_->add(countKey_, change); });
    return count;
  }

  // A TCPStore has one connection, which a waiting get() keeps: with a connection of its own, a
  // group never blocks those of other groups and of the user.
  static c10::intrusive_ptr<c10d::Store> ownConnection(
      const c10::intrusive_ptr<c10d::Store>& store) {
    c10::intrusive_ptr<c10d::Store> innermost = store;
    if (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get())) {
      innermost = prefixed->getUnderlyingNonPrefixStore();
    }
    if (dynamic_cast<c10d::TCPStore*>(innermost.get()) == nullptr) return store;
    return translated("taco: connecting to the store", [&] {
      try {
        return store->clone();
      } catch (...) {
        throw Error(ErrorCode::kPeerFailed,
                    str("the TCPStore that the group was given does not answer (does the process "
                        "of rank 0 still live?): ",
                        currentError().what()));
      }
    });
  }

  static Millis waitingTime(const Deadline& deadline) {
    const auto left =
        std::chrono::duration_cast<Millis>(deadline.remaining(std::chrono::hours(24)));
    return std::max(left, Millis(1));  // 0 would mean the store's own default
  }

  template <typename Call>
  void guarded(const char* verb, const std::string& key, const Deadline& deadline, Call&& call) {
    try {
      call();
    } catch (...) {
      const std::string why = currentError().what();
      if (deadline.expired()) {
        throw Error(ErrorCode::kTimeout,
                    str("nobody wrote the key '", key, "' to the store within ",
                        deadline.budget().count(), " ms"));
      }
      throw Error(ErrorCode::kPeerFailed,
                  str("could not ", verb, " the key '", key,
                      "' in the store that the group was given (does the process that serves it, "
                      "usually rank 0's, still live?): ",
                      why));
    }
  }

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string countKey_;
  std::string prefix_;
};

}  // namespace taco
