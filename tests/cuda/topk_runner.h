// Where the TopK kernels run in a test: on the CPU through the shim (simt_runner.cc), or on a GPU
// through libtaco_cuda.so (device_runner.cc). The tests are the same sources, linked with either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "csrc/base/error.h"
#include "csrc/data/buffer.h"
#include "cuda/topk.h"
#include "tests/csrc/topk/topk_reference.h"

namespace taco::testing {

class Runner {
 public:
  virtual ~Runner() = default;

  // Device memory, aligned to 256 bytes.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* pointer) = 0;
  virtual void write(void* device, const void* host, size_t bytes) = 0;
  virtual void read(void* host, const void* device, size_t bytes) = 0;

  // Each throws taco::Error, and is over when it returns.
  virtual size_t workspaceBytes(size_t count, size_t k) = 0;
  virtual void begin(void* workspace, size_t bytes) = 0;
  virtual void select(const cuda::SelectCall& call) = 0;
  virtual void scatterAdd(const cuda::ScatterAddCall& call) = 0;

  // Another order of whatever runs at the same time, where that can be chosen.
  virtual void shuffle(uint32_t seed) = 0;
};

Runner& runner();

// What the error of a call says; empty where it has none.
inline std::string complaint(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Device memory for the length of a test, with sentinels on both sides. `shift` bytes off the
// alignment.
class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes, size_t shift = 0);
  DeviceMemory(const Bytes& bytes, size_t shift) : DeviceMemory(bytes.size(), shift) {
    write(bytes);
  }
  ~DeviceMemory() { runner().release(whole_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  char* data() const { return whole_ + kGuard + shift_; }
  size_t bytes() const { return bytes_; }
  void write(const Bytes& bytes);
  Bytes read() const;
  // Whether nobody has written beside it.
  bool isGuarded() const;

  template <typename T>
  std::vector<T> readAs() const {
    const Bytes bytes = read();
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

 private:
  static constexpr size_t kGuard = 256;
  size_t bytes_, shift_;
  char* whole_;
};

// One buffer's selection on the runner: residual, workspace and payload.
class DeviceSelector {
 public:
  // `shift` elements off the alignment, all pointers.
  DeviceSelector(DType dtype, size_t count, PayloadLayout layout, size_t shift = 0);

  Selected step(const Bytes& gradient);
  void setResidual(const std::vector<float>& residual);
  cuda::SelectReport report() const;

 private:
  DType dtype_;
  size_t count_;
  PayloadLayout layout_;
  DeviceMemory gradient_, residual_, payload_, found_, workspace_;
};

}  // namespace taco::testing
