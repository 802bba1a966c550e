// The runner on the CPU. A machine of two multiprocessors, so that grids have several blocks and
// each takes several tiles.
#include <cstdlib>
#include <cstring>
#include <new>

#include "tests/cuda/simt.h"
#include "tests/cuda/topk_runner.h"

namespace taco::testing {
namespace {

const cuda::DeviceApi kTwoMultiprocessors = {
    .deviceCount = nullptr,
    .multiprocessorCount =
        [](int* count) {
          *count = 2;
          return 0;
        },
    .allocate = nullptr,
    .release = nullptr,
    .copyAsync = nullptr,
    .synchronize = nullptr,
    .errorText = nullptr,
};

class SimtRunner : public Runner {
 public:
  void* allocate(size_t bytes) override { return ::operator new (bytes, std::align_val_t{256}); }
  void release(void* pointer) override { ::operator delete (pointer, std::align_val_t{256}); }
  void write(void* device, const void* host, size_t bytes) override {
    std::memcpy(device, host, bytes);
  }
  void read(void* host, const void* device, size_t bytes) override {
    std::memcpy(host, device, bytes);
  }

  size_t workspaceBytes(size_t count, size_t k) override {
    return cuda::selectWorkspaceBytes(count, k);
  }
  void begin(void* workspace, size_t bytes) override {
    cuda::beginSelect(workspace, bytes, nullptr);
  }
  void select(const cuda::SelectCall& call) override {
    cuda::enqueueSelect(call, kTwoMultiprocessors);
  }
  void scatterAdd(const cuda::ScatterAddCall& call) override { cuda::enqueueScatterAdd(call); }
  void shuffle(uint32_t seed) override { simt::options().seed = seed; }
};

}  // namespace

Runner& runner() {
  static SimtRunner theRunner;
  return theRunner;
}

}  // namespace taco::testing
