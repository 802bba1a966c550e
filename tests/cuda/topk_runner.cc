#include "tests/cuda/topk_runner.h"

#include <algorithm>

#include "tests/csrc/catch.h"

namespace taco::testing {
namespace {

constexpr uint8_t kSentinel = 0xa5;

}  // namespace

DeviceMemory::DeviceMemory(size_t bytes, size_t shift)
    : bytes_(bytes),
      shift_(shift),
      whole_(static_cast<char*>(runner().allocate(bytes + shift + 2 * kGuard))) {
  const Bytes all(bytes + shift + 2 * kGuard, kSentinel);
  runner().write(whole_, all.data(), all.size());
}

void DeviceMemory::write(const Bytes& bytes) {
  REQUIRE(bytes.size() == bytes_);
  if (bytes_ > 0) runner().write(data(), bytes.data(), bytes_);
}

Bytes DeviceMemory::read() const {
  Bytes bytes(bytes_);
  if (bytes_ > 0) runner().read(bytes.data(), data(), bytes_);
  return bytes;
}

bool DeviceMemory::isGuarded() const {
  Bytes before(kGuard + shift_), behind(kGuard);
  runner().read(before.data(), whole_, before.size());
  runner().read(behind.data(), data() + bytes_, behind.size());
  const auto isSentinel = [](uint8_t byte) { return byte == kSentinel; };
  return std::all_of(before.begin(), before.end(), isSentinel) &&
         std::all_of(behind.begin(), behind.end(), isSentinel);
}

DeviceSelector::DeviceSelector(DType dtype, size_t count, PayloadLayout layout, size_t shift)
    : dtype_(dtype),
      count_(count),
      layout_(layout),
      gradient_(count * elementBytes(dtype), shift * elementBytes(dtype)),
      residual_(Bytes(count * sizeof(float)), shift * sizeof(float)),
      payload_(layout.bytes(), shift * sizeof(uint32_t)),
      found_(sizeof(uint32_t)),
      workspace_(runner().workspaceBytes(count, layout.k)) {
  runner().begin(workspace_.data(), workspace_.bytes());
}

Selected DeviceSelector::step(const Bytes& gradient) {
  gradient_.write(gradient);
  payload_.write(Bytes(payload_.bytes(), 0xee));
  cuda::SelectCall call;
  call.gradient = gradient_.data();
  call.dtype = dtype_;
  call.residual = reinterpret_cast<float*>(residual_.data());
  call.count = count_;
  call.layout = layout_;
  call.payload = payload_.data();
  call.found = reinterpret_cast<uint32_t*>(found_.data());
  call.workspace = workspace_.data();
  call.workspaceBytes = workspace_.bytes();
  runner().select(call);
  for (const DeviceMemory* memory : {&gradient_, &residual_, &payload_, &found_, &workspace_}) {
    if (!memory->isGuarded()) FAIL("the selection has written beside its memory");
  }
  const uint32_t found = found_.readAs<uint32_t>()[0];
  if ((found & ~cuda::kFoundNonFinite) != 0) FAIL("the selection has found " << found);
  return {payload_.read(), residual_.readAs<float>(), found == 0};
}

void DeviceSelector::setResidual(const std::vector<float>& residual) {
  residual_.write(stored(DType::kFloat32, residual));
}

cuda::SelectReport DeviceSelector::report() const {
  cuda::SelectReport report;
  runner().read(&report, workspace_.data(), sizeof report);
  return report;
}

}  // namespace taco::testing
