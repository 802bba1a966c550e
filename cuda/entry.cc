#include "cuda/entry.h"

#include <cstdio>
#include <exception>
#include <string>

#include "csrc/base/error.h"

namespace taco::cuda {
namespace {

void checkCuda(int error, const char* what) {
  if (error == 0) return;
  throw Error(ErrorCode::kSystem, std::string(what) +
                                      " failed: " + runtimeDeviceApi().errorText(error) +
                                      " (CUDA error " + std::to_string(error) + ")");
}

// Runs `body` and turns an exception into false and a sentence.
template <typename Body>
bool guarded(Reason* why, const Body& body) {
  try {
    body();
    return true;
  } catch (const std::exception& error) {
    std::snprintf(why->text, sizeof why->text, "%s", error.what());
  } catch (...) {
    std::snprintf(why->text, sizeof why->text, "an exception of unknown type");
  }
  return false;
}

bool countDevices(int* count, Reason* why) {
  return guarded(why,
                 [&] { checkCuda(runtimeDeviceApi().deviceCount(count), "counting the GPUs"); });
}

bool sum(const SumCall* call, Reason* why) {
  return guarded(why,
                 [&] { checkCuda(enqueueSum(*call, runtimeDeviceApi()), "a sum on the GPU"); });
}

bool loadNccl(NcclApi* api, Reason* why) {
  return guarded(why, [&] { *api = loadNcclApi(); });
}

bool begin(void* workspace, size_t bytes, void* stream, Reason* why) {
  return guarded(why, [&] {
    checkCuda(beginSelect(workspace, bytes, stream), "clearing a TopK workspace on the GPU");
  });
}

bool select(const SelectCall* call, Reason* why) {
  return guarded(why, [&] {
    checkCuda(enqueueSelect(*call, runtimeDeviceApi()), "a TopK selection on the GPU");
  });
}

bool scatterAdd(const ScatterAddCall* call, Reason* why) {
  return guarded(why,
                 [&] { checkCuda(enqueueScatterAdd(*call), "a TopK scatter-add on the GPU"); });
}

}  // namespace
}  // namespace taco::cuda

extern "C" __attribute__((visibility("default"))) const taco::cuda::Entry* taco_cuda_entry(
    int entryVersion) {
  using namespace taco::cuda;
  static const Entry entry = {&runtimeDeviceApi(),  countDevices, sum,    loadNccl,
                              selectWorkspaceBytes, begin,        select, scatterAdd};
  return entryVersion == kEntryVersion ? &entry : nullptr;
}
