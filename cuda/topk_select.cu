// The selection's launches. What its kernels do: cuda/topk_select_kernels.cuh.
#include <algorithm>
#include <cstdint>
#include <string>

#include "csrc/base/error.h"
#include "cuda/topk_select_kernels.cuh"

namespace taco::cuda {
namespace {

void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, "a TopK selection on the GPU " + what);
}

void check(const SelectCall& call) {
  const auto isAligned = [](const void* pointer, size_t bytes) {
    return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
  };
  if (call.dtype != DType::kFloat32 && call.dtype != DType::kFloat16 &&
      call.dtype != DType::kBFloat16) {
    throw Error(ErrorCode::kUnsupported, std::string("there is no GPU kernel that selects from ") +
                                             name(call.dtype) +
                                             "; it takes float32, float16 and bfloat16");
  }
  if (call.count >= 1ull << 31) {
    refuse("takes fewer than 2^31 elements, not " + std::to_string(call.count));
  }
  if (call.layout.k > call.count || (call.layout.k == 0 && call.count > 0)) {
    refuse("was asked for " + std::to_string(call.layout.k) + " of " + std::to_string(call.count) +
           " elements");
  }
  if (call.found == nullptr) refuse("needs a word in device memory for what it finds");
  if (!isAligned(call.gradient, elementBytes(call.dtype)) || !isAligned(call.residual, 4) ||
      !isAligned(call.payload, 4)) {
    refuse("needs gradient and residual aligned to their elements and the payload to 4 bytes");
  }
  const size_t wanted = selectWorkspaceBytes(call.count, call.layout.k);
  if (call.layout.k > 0 && (call.workspaceBytes < wanted || !isAligned(call.workspace, 256))) {
    refuse("needs a workspace of " + std::to_string(wanted) +
           " bytes, aligned to 256; it was given " + std::to_string(call.workspaceBytes) +
           " bytes");
  }
}

SelectArguments argumentsOf(const SelectCall& call) {
  const SelectWorkspace parts(call.count, call.layout.k);
  auto* const workspace = static_cast<char*>(call.workspace);
  SelectArguments a = {};
  a.gradient = call.gradient;
  a.residual = reinterpret_cast<uint32_t*>(call.residual);
  a.count = static_cast<uint32_t>(call.count);
  a.k = static_cast<uint32_t>(call.layout.k);
  a.gradientAligned =
      reinterpret_cast<uintptr_t>(call.gradient) % (kNeighbours * elementBytes(call.dtype)) == 0;
  a.residualAligned = reinterpret_cast<uintptr_t>(call.residual) % (kNeighbours * 4) == 0;
  a.payloadIndices = static_cast<uint32_t*>(call.payload);
  a.payloadValues = static_cast<char*>(call.payload) + call.layout.valueOffset();
  a.found = call.found;
  a.state = reinterpret_cast<SelectState*>(workspace);
  a.tiles = static_cast<uint32_t>(parts.tiles);
  a.capacity = static_cast<uint32_t>(parts.capacity);
  a.collectWords = reinterpret_cast<Word*>(workspace + parts.collectWords);
  a.chooseWords = reinterpret_cast<Word*>(workspace + parts.chooseWords);
  a.coarse = reinterpret_cast<uint32_t*>(workspace + parts.histograms);
  a.top = a.coarse + kBins;
  a.middle = a.top + kBins;
  a.last = a.middle + kBins;
  a.candidateBits = reinterpret_cast<uint32_t*>(workspace + parts.bits);
  a.candidateIndex = reinterpret_cast<uint32_t*>(workspace + parts.indices);
  return a;
}

int launchPredict(const SelectArguments& a, DType dtype, unsigned blocks, void* stream) {
  if (dtype == DType::kFloat16) {
    return TACO_LAUNCH(predictKernel<Float16>, blocks, kThreads, stream, a);
  }
  if (dtype == DType::kBFloat16) {
    return TACO_LAUNCH(predictKernel<BFloat16>, blocks, kThreads, stream, a);
  }
  return TACO_LAUNCH(predictKernel<Float32>, blocks, kThreads, stream, a);
}

int launchChoose(const SelectArguments& a, TopkValues values, unsigned blocks, void* stream) {
  if (values == TopkValues::kFloat16) {
    return TACO_LAUNCH(chooseKernel<TopkValues::kFloat16>, blocks, kThreads, stream, a);
  }
  return TACO_LAUNCH(chooseKernel<TopkValues::kFloat32>, blocks, kThreads, stream, a);
}

}  // namespace

size_t selectWorkspaceBytes(size_t count, size_t k) { return SelectWorkspace(count, k).bytes; }

int beginSelect(void* workspace, size_t bytes, void* stream) {
  // The candidates behind the counters need no clearing, but once is cheap.
  const size_t words = bytes / sizeof(uint32_t);
  const auto blocks = static_cast<unsigned>(std::clamp<size_t>(words / kTile, 1, 256));
  return TACO_LAUNCH(clearKernel, blocks, kThreads, stream, static_cast<uint32_t*>(workspace),
                     words);
}

int enqueueSelect(const SelectCall& call, const DeviceApi& device) {
  check(call);
  if (call.layout.k == 0) {
    return TACO_LAUNCH(clearKernel, 1u, kThreads, call.stream, call.found, size_t{1});
  }
  int multiprocessors = 0;
  if (const int error = device.multiprocessorCount(&multiprocessors); error != 0) return error;
  const SelectArguments a = argumentsOf(call);
  const unsigned resident = static_cast<unsigned>(multiprocessors) * kBlocksPerMultiprocessor;
  const unsigned blocks = std::min(a.tiles, resident);
  if (const int error = launchPredict(a, call.dtype, blocks, call.stream)) return error;
  if (const int error = TACO_LAUNCH(histogramKernel, blocks, kThreads, call.stream, a))
    return error;
  if (const int error = TACO_LAUNCH(secondKernel, blocks, kThreads, call.stream, a)) return error;
  if (const int error = TACO_LAUNCH(lastKernel, blocks, kThreads, call.stream, a)) return error;
  const unsigned choosing = static_cast<unsigned>(multiprocessors) * kChooseBlocksPerMultiprocessor;
  return launchChoose(a, call.layout.values, std::min(a.tiles, choosing), call.stream);
}

}  // namespace taco::cuda
