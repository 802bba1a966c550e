// Tensors in memory that all ranks of a node see.
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "csrc/base/format.h"
#include "csrc/base/log.h"
#include "torch_ext/errors.h"
#include "torch_ext/process_group_taco.h"
#include "torch_ext/tensors.h"

namespace taco {

at::Tensor ProcessGroupTaco::allocateTensor(long size,  // NOLINT(runtime/int): torch's
                                            at::TensorOptions options) {
  const char* operation = "shared_empty";
  requireUsable();
  if (size < 0) refuse(operation, str("the number of elements is ", size, "; it must be at least 0"));
  if (!options.device().is_cpu()) {
    refuse(operation, str("the device is ", options.device().str(),
                          "; memory is shared between CPU tensors only"));
  }
  const size_t bytes = static_cast<size_t>(size) * options.dtype().itemsize();
  std::shared_ptr<void> memory;
  if (bytes > 0 && communicator_->sharesMemory()) {
    std::string whyNot;
    translated("taco:shared_empty", [&] {
      const auto why = communicator_->run(
          c10d::kUnsetTimeout,
          [&](Collectives& collectives) { memory = collectives.sharedMemory(bytes, &whyNot); },
          "taco:shared_empty");
      if (why) throw *why;
    });
    if (!memory) {
      log(LogLevel::kWarn, str("shared_empty: an ordinary tensor of ", bytes,
                               " bytes instead of a shared one: ", whyNot));
    }
  }
  if (!memory) return at::empty({size}, options);
  void* const data = memory.get();
  return at::from_blob(data, {size}, [memory = std::move(memory)](void*) {}, options);
}

// -1 is what a CPU device has for an index.
bool ProcessGroupTaco::supportsTensorAlloc(c10::DeviceIndex device) {
  return device == -1 && communicator_->sharesMemory();
}

}  // namespace taco
