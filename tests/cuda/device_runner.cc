// The runner on a GPU: through libtaco_cuda.so, as torch_ext reaches it.
#include "tests/cuda/device_runner.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "csrc/base/error.h"
#include "cuda/entry.h"
#include "tests/cuda/topk_runner.h"

namespace taco::testing {
namespace {

[[noreturn]] void give(const char* what, const char* why) {
  std::fprintf(stderr, "device tests: %s: %s\n", what, why);
  std::exit(1);
}

class DeviceRunner : public Runner {
 public:
  void* allocate(size_t bytes) override {
    void* pointer = nullptr;
    check(entry().device->allocate(&pointer, bytes), "allocating device memory");
    return pointer;
  }
  void release(void* pointer) override { entry().device->release(pointer); }
  void write(void* device, const void* host, size_t bytes) override { copy(device, host, bytes); }
  void read(void* host, const void* device, size_t bytes) override { copy(host, device, bytes); }

  size_t workspaceBytes(size_t count, size_t k) override {
    return entry().selectWorkspaceBytes(count, k);
  }
  void begin(void* workspace, size_t bytes) override {
    cuda::Reason why;
    finish(entry().beginSelect(workspace, bytes, nullptr, &why), why);
  }
  void select(const cuda::SelectCall& call) override {
    cuda::Reason why;
    finish(entry().select(&call, &why), why);
  }
  void scatterAdd(const cuda::ScatterAddCall& call) override {
    cuda::Reason why;
    finish(entry().scatterAdd(&call, &why), why);
  }
  void shuffle(uint32_t) override {}  // the GPU has an order of its own, every time

 private:
  static void check(int error, const char* what) {
    if (error == 0) return;
    throw Error(ErrorCode::kSystem,
                std::string(what) + " failed: " + entry().device->errorText(error));
  }
  static void copy(void* to, const void* from, size_t bytes) {
    check(entry().device->copyAsync(to, from, bytes, nullptr), "a copy");
    check(entry().device->synchronize(nullptr), "waiting for a copy");
  }
  static void finish(bool done, const cuda::Reason& why) {
    if (!done) throw Error(ErrorCode::kInvalidArgument, why.text);
    check(entry().device->synchronize(nullptr), "waiting for a kernel");
  }
};

}  // namespace

const cuda::Entry& entry() {
  static const cuda::Entry* const theEntry = [] {
    const char* const path = std::getenv("TACO_CUDA_LIBRARY");
    void* const library = dlopen(path != nullptr ? path : "libtaco_cuda.so", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) give("TACO_CUDA_LIBRARY", dlerror());
    auto* const getEntry = reinterpret_cast<cuda::GetEntry>(dlsym(library, cuda::kEntryName));
    const cuda::Entry* const found = getEntry == nullptr ? nullptr : getEntry(cuda::kEntryVersion);
    if (found == nullptr) give("TACO_CUDA_LIBRARY", "the library was built from other sources");
    int count = 0;
    cuda::Reason why;
    if (!found->countDevices(&count, &why)) give("no GPU", why.text);
    if (count == 0) give("no GPU", "this process sees none");
    return found;
  }();
  return *theEntry;
}

Runner& runner() {
  static DeviceRunner theRunner;
  return theRunner;
}

}  // namespace taco::testing
