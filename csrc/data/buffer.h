// A view of `count` elements somewhere in memory: what algorithms are handed instead of tensors. It
// owns nothing; the caller keeps the memory alive until the operation is over.
#pragma once

#include <cstddef>
#include <cstdint>

#include "csrc/data/dtype.h"

namespace taco {

enum class Device : uint8_t { kCpu, kCuda };

struct Buffer {
  void* data = nullptr;
  size_t count = 0;  // elements, not bytes
  DType dtype = DType::kFloat32;
  Device device = Device::kCpu;
  void* stream = nullptr;  // cudaStream_t on which the data are ready; unused on the CPU

  size_t bytes() const { return count * elementBytes(dtype); }
  char* bytePointer() const { return static_cast<char*>(data); }

  // `sliceCount` elements from element `offset`; the caller sees to it that they lie inside.
  Buffer slice(size_t offset, size_t sliceCount) const {
    // A null pointer (an empty tensor's) plus 0 is fine, so no special case.
    return {bytePointer() + offset * elementBytes(dtype), sliceCount, dtype, device, stream};
  }
};

struct ConstBuffer {
  const void* data = nullptr;
  size_t count = 0;
  DType dtype = DType::kFloat32;
  Device device = Device::kCpu;
  void* stream = nullptr;

  ConstBuffer() = default;
  ConstBuffer(const void* theData, size_t theCount, DType theDtype, Device theDevice = Device::kCpu,
              void* theStream = nullptr)
      : data(theData), count(theCount), dtype(theDtype), device(theDevice), stream(theStream) {}
  // Implicit: whoever may write may also only read.
  ConstBuffer(const Buffer& buffer)  // NOLINT(google-explicit-constructor)
      : ConstBuffer(buffer.data, buffer.count, buffer.dtype, buffer.device, buffer.stream) {}

  size_t bytes() const { return count * elementBytes(dtype); }
  const char* bytePointer() const { return static_cast<const char*>(data); }

  ConstBuffer slice(size_t offset, size_t sliceCount) const {
    return {bytePointer() + offset * elementBytes(dtype), sliceCount, dtype, device, stream};
  }
};

}  // namespace taco
