// From tensors to buffers: which tensors the backend takes, and how their elements become the dense
// host memory that the engine works on.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "csrc/data/buffer.h"
#include "torch_ext/strided_copy.h"

namespace taco {

// The engine's name for a torch dtype; dtypes without arithmetic here travel as opaque bytes.
DType dtypeOf(at::ScalarType dtype);
DType dtypeOf(const at::Tensor& tensor);

// "torch.float32", as Python prints it.
std::string dtypeName(const at::Tensor& tensor);
std::string shapeOf(const at::Tensor& tensor);  // "[3, 4]"

// A ValueError of torch: "taco:all_gather: <message>". For arguments; nothing has been sent.
[[noreturn]] void refuse(const char* operation, const std::string& message);

// Refuses undefined tensors, tensors that are not on the CPU, and layouts other than strided.
void requireDenseCpu(const char* operation, const char* argument, const at::Tensor& tensor);
void requireDenseCpu(const char* operation, const char* argument,
                     const std::vector<at::Tensor>& tensors);

// Refuses a tensor whose dtype differs from that of `like`.
void requireSameDtype(const char* operation, const char* argument, const at::Tensor& tensor,
                      const at::Tensor& like);

// A tensor as the engine sees it: its own memory where that is dense, else a temporary that load()
// fills and store() copies back. Keeps the tensor's memory alive. Copies share the temporary.
class Staged {
 public:
  enum class Access { kRead, kWrite, kReadWrite };

  // Refuses a tensor that is written although several of its elements are the same memory
  // (expanded tensors).
  Staged(const char* operation, const char* argument, const at::Tensor& tensor, Access access);

  size_t count() const { return count_; }
  Buffer buffer() const { return {address_, count_, dtype_}; }
  ConstBuffer constBuffer() const { return {address_, count_, dtype_}; }

  // True if some byte belongs to both tensors; true for overlapping extents of strided ones.
  bool sharesMemory(const Staged& other) const;
  // Works on a temporary even though the memory is dense: what an operation reads must not be what
  // it writes in another order.
  void useTemporary();

  void load() const;   // before the operation, on the thread that runs it
  void store() const;  // after it

 private:
  bool hasTemporary() const { return temporary_ != nullptr; }
  void applyLazyBits() const;

  at::Tensor tensor_;
  Access access_;
  StridedView view_;
  size_t count_ = 0;
  DType dtype_ = DType::kFloat32;
  char* extentBegin_ = nullptr;  // all memory the view can touch
  char* extentEnd_ = nullptr;
  void* address_ = nullptr;
  std::shared_ptr<char> temporary_;
};

// Every element of `staged` in turn.
void load(const std::vector<Staged>& staged);
void store(const std::vector<Staged>& staged);

std::vector<Staged> stageAll(const char* operation, const char* argument,
                             const std::vector<at::Tensor>& tensors, Staged::Access access);

}  // namespace taco
