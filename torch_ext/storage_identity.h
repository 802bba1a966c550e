// Which storage a tensor's memory is, as a number that no other storage gets: for what belongs to a
// buffer beyond one operation (the residuals of TopK).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <unordered_map>

#include "csrc/topk/residuals.h"

namespace taco {

// Holds storages weakly: an entry keeps the small StorageImpl, so that its address is not given to
// another storage, but not its memory. Thread-safe.
class StorageIdentities {
 public:
  // `died` is called with the number of every storage that has died since the last call of of() or
  // sweep(), on the thread of that call.
  explicit StorageIdentities(std::function<void(uint64_t)> died) : died_(std::move(died)) {}

  BufferIdentity of(const at::Tensor& tensor);
  void sweep();

 private:
  using Weak = c10::weak_intrusive_ptr<c10::StorageImpl>;
  struct Entry {
    Weak storage;
    uint64_t number;
  };
  void sweepLocked();

  const std::function<void(uint64_t)> died_;
  std::mutex mutex_;  // guards the two below
  std::unordered_map<const c10::StorageImpl*, Entry> entries_;
  uint64_t last_ = 0;
};

}  // namespace taco
