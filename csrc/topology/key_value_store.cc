#include "csrc/topology/key_value_store.h"

#include "csrc/base/error.h"
#include "csrc/base/format.h"

namespace taco {

void MemoryStore::set(const std::string& key, const std::string& value) {
  std::lock_guard<std::mutex> lock(mutex_);
  values_[key] = value;
  changed_.notify_all();
}

std::string MemoryStore::get(const std::string& key, const Deadline& deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    const auto found = values_.find(key);
    if (found != values_.end()) return found->second;
    if (deadline.expired()) {
      throw Error(ErrorCode::kTimeout, str("nobody set the store's key '", key, "' within ",
                                           deadline.budget().count(), " ms"));
    }
    changed_.wait_for(lock, deadline.remaining(std::chrono::seconds(1)));
  }
}

std::optional<std::string> MemoryStore::peek(const std::string& key) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

int64_t MemoryStore::add(const std::string& key, int64_t amount) {
  std::lock_guard<std::mutex> lock(mutex_);
  return counters_[key] += amount;
}

}  // namespace taco
