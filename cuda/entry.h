// The door of libtaco_cuda.so. The library is opened with dlopen when the first CUDA tensor
// arrives, and asked for one table; nothing else is exported. No exception leaves it: a call that
// fails returns false and writes one sentence into `why`.
#pragma once

#include <cstddef>

#include "cuda/device.h"
#include "cuda/nccl_api.h"
#include "cuda/reduce_kernels.h"
#include "cuda/topk.h"

namespace taco::cuda {

// Raised with every change of this file or of a type it hands out: library and caller are two files
// and may be of two installations.
inline constexpr int kEntryVersion = 2;
inline constexpr const char* kEntryName = "taco_cuda_entry";

struct Reason {
  char text[512] = {};
};

struct Entry {
  const DeviceApi* device;

  // How many GPUs this process sees; fails where there is no driver.
  bool (*countDevices)(int* count, Reason* why);
  // Enqueues a sum on the call's stream.
  bool (*sum)(const SumCall* call, Reason* why);
  // The functions of the NCCL that torch loaded.
  bool (*loadNccl)(NcclApi* api, Reason* why);

  // TopK, as cuda/topk.h tells it. How large a workspace is, what makes it ready, one step; and
  // from payloads back to a dense buffer. All but the first are enqueued.
  size_t (*selectWorkspaceBytes)(size_t count, size_t k);
  bool (*beginSelect)(void* workspace, size_t bytes, void* stream, Reason* why);
  bool (*select)(const SelectCall* call, Reason* why);
  bool (*scatterAdd)(const ScatterAddCall* call, Reason* why);
};

// The type of `taco_cuda_entry`: nullptr when the library was built for another entry version.
using GetEntry = const Entry* (*)(int entryVersion);

}  // namespace taco::cuda
