#include "torch_ext/storage_identity.h"

namespace taco {

BufferIdentity StorageIdentities::of(const at::Tensor& tensor) {
  std::lock_guard<std::mutex> lock(mutex_);
  sweepLocked();
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  auto found = entries_.find(storage);
  if (found == entries_.end()) {
    found = entries_.emplace(storage, Entry{tensor.storage().getWeakStorageImpl(), ++last_}).first;
  }
  const size_t offset = static_cast<size_t>(tensor.storage_offset()) * tensor.element_size();
  return {found->second.number, offset};
}

void StorageIdentities::sweep() {
  std::lock_guard<std::mutex> lock(mutex_);
  sweepLocked();
}

void StorageIdentities::sweepLocked() {
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    if (entry->second.storage.expired()) {
      died_(entry->second.number);
      entry = entries_.erase(entry);
    } else {
      ++entry;
    }
  }
}

}  // namespace taco
