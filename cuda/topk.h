// TopK with error feedback on the GPU: what csrc/topk does in host memory, to the bit. Everything
// is enqueued on a stream and nothing waits for it, allocates or asks how much there is, so a whole
// step can be captured in a CUDA graph (after one outside: CUDA loads kernels when they are first
// launched). Sizes of workspaces are asked for first, as with CUB.
#pragma once

#include <cstddef>
#include <cstdint>

#include "csrc/data/dtype.h"
#include "csrc/topk/payload.h"
#include "cuda/device.h"

namespace taco::cuda {

// What a call may find, as bits of a word in device memory; 0: all is well.
inline constexpr uint32_t kFoundNonFinite =
    1;  // a chosen value, or a payload's, is NaN or infinite
inline constexpr uint32_t kFoundBrokenPayload = 2;  // indices that do not ascend or lie outside

// csrc/topk/select.h says what comes out. All pointers are device memory. `gradient` and `residual`
// need the alignment of their elements (16 bytes are faster), the payload 4 bytes.
struct SelectCall {
  const void* gradient = nullptr;
  DType dtype = DType::kFloat32;  // or kFloat16, kBFloat16
  float* residual = nullptr;
  size_t count = 0;  // below 2^31
  PayloadLayout layout;
  void* payload = nullptr;
  uint32_t* found = nullptr;  // set by the call
  void* workspace = nullptr;
  size_t workspaceBytes = 0;
  void* stream = nullptr;
};

// A workspace is one buffer's: it keeps the guess of the next step. Aligned to 256 bytes, as
// allocations are. It fits one count and one k; for others, ask again and begin anew.
size_t selectWorkspaceBytes(size_t count, size_t k);

// What a workspace begins with, to be copied out of it and looked at.
struct SelectReport {
  uint32_t thresholdKey;  // of the last step: the bits of the k-th magnitude
  uint32_t candidates;    // of the last step: among how many it was looked for
  // How many steps went which way since beginSelect, and what they moved per element of float32.
  uint32_t predicted;  // the guess held: 12 bytes
  uint32_t collected;  // a histogram, and the candidates found again: 20 bytes
  uint32_t whole;      // the choice made in the whole residual: 16 to 28 bytes
};

// Enqueues what makes a workspace ready for its first step.
int beginSelect(void* workspace, size_t bytes, void* stream);

// Enqueues one step and returns the launches' cudaError_t. Throws taco::Error for a call that
// cannot be done, before anything is enqueued.
int enqueueSelect(const SelectCall& call, const DeviceApi& device);

// csrc/topk/scatter_add.h says what comes out.
struct ScatterAddCall {
  const void* payloads = nullptr;  // one behind the other, as an all-gather leaves them
  size_t strideBytes = 0;          // from one to the next; a multiple of 4
  int payloadCount = 0;
  PayloadLayout layout;
  void* dense = nullptr;
  size_t count = 0;               // below 2^31
  DType dtype = DType::kFloat32;  // or kFloat16, kBFloat16
  int64_t divisor = 1;
  // Set by the call. With kFoundBrokenPayload, `dense` holds anything, and nothing else was
  // touched.
  uint32_t* found = nullptr;
  void* stream = nullptr;
};

int enqueueScatterAdd(const ScatterAddCall& call);

}  // namespace taco::cuda
