#include "torch_ext/store_connection.h"

#include <unistd.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <map>
#include <thread>
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

struct StoreConnection::Answer {
  bool done = false;
  std::exception_ptr trouble;
};

void StoreConnection::ask(const Call& call, std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  const auto reply = std::make_shared<Answer>();
  std::unique_lock<std::mutex> lock(mutex_);
  if (!changed_.wait_until(lock, until, [&] { return !busy_ || abandoned_; }) || abandoned_) {
    throw Error(ErrorCode::kPeerFailed,
                "the store still owes the answer to an earlier question (has its host stopped, is the "
                "network to it broken?)");
  }
  if (lost_) throw Error(ErrorCode::kPeerFailed, "the connection to the store broke before");
  if (creator_ != ::getpid()) {
    throw Error(ErrorCode::kAborted, "this process was forked after the group was made");
  }
  std::thread asking([self = shared_from_this(), call, reply] { self->answer(call, *reply); });
  busy_ = true;
  const bool answered = changed_.wait_until(lock, until, [&] { return reply->done; });
  abandoned_ = !answered;
  lock.unlock();
  if (!answered) {
    asking.detach();
    throw Error(ErrorCode::kPeerFailed,
                str("the store has not answered within ", patience.count(),
                    " ms (has its host stopped, is the network to it broken?)"));
  }
  asking.join();
  if (reply->trouble) std::rethrow_exception(reply->trouble);
}

void StoreConnection::answer(const Call& call, Answer& answer) {
  std::exception_ptr trouble;
  try {
    if (!connection_) connection_ = origin_->clone();
    call(*connection_);
  } catch (...) {
    trouble = std::current_exception();
  }
  std::lock_guard<std::mutex> lock(mutex_);
  lost_ |= trouble != nullptr;
  busy_ = abandoned_ = false;
  answer.trouble = trouble;
  answer.done = true;
  changed_.notify_all();
}

}  // namespace taco
