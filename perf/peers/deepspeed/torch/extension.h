// Stands for torch's header while DeepSpeed's shm.cpp is compiled as a plug-in: the five names of
// torch that its float32 and half paths use.
#pragma once

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace c10 {
enum class ScalarType { Float, Half, BFloat16 };
}

namespace at {

// Only for the elements that do not fill a vector.
struct BFloat16 {
  uint16_t bits;
  operator float() const {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
  }
  BFloat16& operator=(float value) {
    uint32_t wide;
    memcpy(&wide, &value, sizeof wide);
    bits = static_cast<uint16_t>((wide + 0x7fff + ((wide >> 16) & 1)) >> 16);  // to nearest even
    return *this;
  }
};

struct Half {
  _Float16 number;
  operator float() const { return static_cast<float>(number); }
  Half& operator=(float value) {
    number = static_cast<_Float16>(value);
    return *this;
  }
};

}  // namespace at

namespace torch {

class Tensor {
 public:
  Tensor(void* data, c10::ScalarType type) : data_(data), type_(type) {}
  void* data_ptr() const { return data_; }
  c10::ScalarType scalar_type() const { return type_; }

 private:
  void* data_;
  c10::ScalarType type_;
};

}  // namespace torch
