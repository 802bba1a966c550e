#include "torch_ext/storage_identity.h"

#include "csrc/data/call.h"

namespace taco {
namespace {

// Two views may begin at one place and have as many elements, but other ones.
uint64_t layoutOf(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) return 0;
  uint64_t hash = 1;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    hash = mixHash(mixHash(hash, static_cast<uint64_t>(tensor.size(d))),
                   static_cast<uint64_t>(tensor.stride(d)));
  }
  return hash;
}

}  // namespace

BufferIdentity StorageIdentities::of(const at::Tensor& tensor) {
  std::lock_guard<std::mutex> lock(mutex_);
  sweepLocked();
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  auto found = entries_.find(storage);
  if (found == entries_.end()) {
    found = entries_.emplace(storage, Entry{tensor.storage().getWeakStorageImpl(), ++last_}).first;
  }
  const size_t offset = static_cast<size_t>(tensor.storage_offset()) * tensor.element_size();
  return {found->second.number, offset, layoutOf(tensor)};
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
