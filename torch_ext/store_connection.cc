#include "torch_ext/store_connection.h"

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
  std::map<const c10d::Store*, std::weak_ptr<StoreConnection>> byOrigin;
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

std::shared_ptr<StoreConnection> StoreConnection::of(
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
  std::shared_ptr<StoreConnection> found = all.byOrigin[origin.get()].lock();
  if (!found) {
    found = std::make_shared<StoreConnection>(origin);
    all.byOrigin[origin.get()] = found;
  }
  return found;
}

StoreConnection::StoreConnection(c10::intrusive_ptr<c10d::Store> origin)
    : origin_(std::move(origin)), creator_(::getpid()) {}

void StoreConnection::ask(const Call& call) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (lost_) throw Error(ErrorCode::kPeerFailed, "the connection to the store broke before");
  if (creator_ != ::getpid()) {
    throw Error(ErrorCode::kAborted, "this process was forked after the group was made");
  }
  try {
    if (!connection_) connection_ = origin_->clone();
    call(*connection_);
  } catch (...) {
    lost_ = true;
    throw;
  }
}

}  // namespace taco
