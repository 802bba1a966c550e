#include "torch_ext/store_connections.h"

#include <unistd.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <map>
#include <utility>

#include "csrc/base/format.h"
#include "torch_ext/errors.h"

namespace taco {
namespace {

// PrefixStore keeps its prefix to itself and its descendants.
struct OpenPrefix : c10d::PrefixStore {
  static const std::string& of(const c10d::PrefixStore& store) { return store.*(&OpenPrefix::prefix_); }
};

struct Registry {
  std::mutex mutex;
  std::map<const c10d::Store*, std::weak_ptr<StoreConnections>> byOrigin;
  pid_t process = ::getpid();
};

Registry& registry() {
  static auto* const one = new Registry;  // never destroyed: groups may end after static objects
  return *one;
}

}  // namespace

std::string prefixOf(const c10::intrusive_ptr<c10d::Store>& store) {
  std::string prefix;
  c10::intrusive_ptr<c10d::Store> at = store;
  while (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(at.get())) {
    prefix = OpenPrefix::of(*prefixed) + "/" + prefix;
    at = prefixed->getUnderlyingStore();
  }
  return prefix;
}

std::shared_ptr<StoreConnections> StoreConnections::of(
    const c10::intrusive_ptr<c10d::Store>& store) {
  c10::intrusive_ptr<c10d::Store> origin = store;
  if (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get())) {
    origin = prefixed->getUnderlyingNonPrefixStore();
  }
  if (dynamic_cast<c10d::TCPStore*>(origin.get()) == nullptr) return nullptr;

  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  if (all.process != ::getpid()) all.byOrigin.clear();  // a parent's, before a fork
  all.process = ::getpid();
  std::erase_if(all.byOrigin, [](const auto& one) { return one.second.expired(); });
  std::shared_ptr<StoreConnections> found = all.byOrigin[origin.get()].lock();
  if (!found) {
    found = std::make_shared<StoreConnections>(origin);
    all.byOrigin[origin.get()] = found;
  }
  return found;
}

StoreConnections::StoreConnections(c10::intrusive_ptr<c10d::Store> origin)
    : origin_(std::move(origin)), creator_(::getpid()) {}

c10::intrusive_ptr<c10d::Store> StoreConnections::borrow() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (lost_) throw Error(ErrorCode::kPeerFailed, "the connection to the store broke before");
    if (!idle_.empty() && creator_ == ::getpid()) {
      auto connection = std::move(idle_.back());
      idle_.pop_back();
      return connection;
    }
  }
  try {
    return origin_->clone();
  } catch (...) {
    throw Error(ErrorCode::kPeerFailed,
                str("the TCPStore that the group was given does not answer (does the process of "
                    "rank 0 still live?): ",
                    currentError().what()));
  }
}

void StoreConnections::giveUp() {
  std::lock_guard<std::mutex> lock(mutex_);
  lost_ = true;
}

void StoreConnections::giveBack(c10::intrusive_ptr<c10d::Store> connection) {
  if (creator_ != ::getpid()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_back(std::move(connection));
}

}  // namespace taco
