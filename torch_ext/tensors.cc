#include "torch_ext/tensors.h"

#include <ATen/MemoryOverlap.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "csrc/base/format.h"

namespace taco {
namespace {

DType opaqueOf(size_t bytes) {
  switch (bytes) {
    case 1: return DType::kBytes1;
    case 2: return DType::kBytes2;
    case 4: return DType::kBytes4;
    case 8: return DType::kBytes8;
    case 16: return DType::kBytes16;
    default: break;
  }
  refuse("dtype", str("elements of ", bytes, " bytes are not supported (1, 2, 4, 8 or 16)"));
}

std::shared_ptr<char> allocateHost(size_t bytes) {
  // torch's allocator: 64-byte alignment, and the profiler counts it.
  auto owner = std::make_shared<c10::DataPtr>(c10::GetCPUAllocator()->allocate(bytes));
  char* memory = static_cast<char*>(owner->get());
  return std::shared_ptr<char>(std::move(owner), memory);
}

// The dtypes whose conjugated and negated views are worked out here.
bool canResolve(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kComplex64 ||
         dtype == DType::kComplex128;
}

template <typename T>
void negateEvery(T* values, size_t count, size_t first, size_t step) {
  for (size_t i = first; i < count; i += step) values[i] = -values[i];
}

}  // namespace

DType dtypeOf(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat: return DType::kFloat32;
    case at::kDouble: return DType::kFloat64;
    case at::kHalf: return DType::kFloat16;
    case at::kBFloat16: return DType::kBFloat16;
    case at::kComplexFloat: return DType::kComplex64;
    case at::kComplexDouble: return DType::kComplex128;
    case at::kChar: return DType::kInt8;
    case at::kShort: return DType::kInt16;
    case at::kInt: return DType::kInt32;
    case at::kLong: return DType::kInt64;
    case at::kByte: return DType::kUInt8;
    case at::kUInt16: return DType::kUInt16;
    case at::kUInt32: return DType::kUInt32;
    case at::kUInt64: return DType::kUInt64;
    case at::kBool: return DType::kBool;
    default: break;  // float8, quantised, bits, complex32, and whatever torch adds next
  }
  return opaqueOf(c10::elementSize(dtype));
}

DType dtypeOf(const at::Tensor& tensor) { return dtypeOf(tensor.scalar_type()); }

std::string dtypeName(const at::Tensor& tensor) {
  // A string or, from torch 2.15 on, a string_view.
  return "torch." + std::string(c10::getDtypeNames(tensor.scalar_type()).first);
}

std::string shapeOf(const at::Tensor& tensor) {
  std::ostringstream out;
  out << tensor.sizes();
  return out.str();
}

void refuse(const char* operation, const std::string& message) {
  throw c10::ValueError(str("taco:", operation, ": ", message), nullptr);
}

void requireDenseCpu(const char* operation, const char* argument, const at::Tensor& tensor) {
  if (!tensor.defined()) refuse(operation, str(argument, " is None where a tensor is needed"));
  if (tensor.is_cuda()) {
    refuse(operation, str(argument, " is on ", tensor.device().str(),
                          ", but this version of TACO communicates CPU tensors only; for CUDA "
                          "tensors use another backend beside it, for example "
                          "init_process_group(\"cpu:taco,cuda:nccl\")"));
  }
  if (!tensor.device().is_cpu()) {
    refuse(operation, str(argument, " is on ", tensor.device().str(),
                          ", but TACO communicates CPU tensors only; move it with .cpu() first"));
  }
  if (tensor.layout() != c10::kStrided) {
    std::ostringstream layout;
    layout << tensor.layout();
    refuse(operation, str(argument, " has layout ", layout.str(),
                          "; only all_reduce takes sparse (COO) tensors, everything else dense "
                          "ones: use .to_dense()"));
  }
}

void requireDenseCpu(const char* operation, const char* argument,
                     const std::vector<at::Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors.size() == 1) {
      requireDenseCpu(operation, argument, tensors[i]);
    } else {
      requireDenseCpu(operation, str(argument, "[", i, "]").c_str(), tensors[i]);
    }
  }
}

void requireSameDtype(const char* operation, const char* argument, const at::Tensor& tensor,
                      const at::Tensor& like) {
  if (tensor.scalar_type() == like.scalar_type()) return;
  refuse(operation, str("all tensors of one call need the same dtype, but ", argument, " is ",
                        dtypeName(tensor), " and another is ", dtypeName(like)));
}

Staged::Staged(const char* operation, const char* argument, const at::Tensor& tensor,
               Access access)
    : tensor_(tensor), access_(access) {
  count_ = static_cast<size_t>(tensor_.numel());
  dtype_ = dtypeOf(tensor_);
  if (count_ == 0) return;
  if (access_ != Access::kRead && at::has_internal_overlap(tensor_) == at::MemOverlap::Yes) {
    refuse(operation,
           str(argument, " of shape ", shapeOf(tensor_),
               " is written, but several of its elements are the same memory (an expanded "
               "tensor); pass a .clone() or .contiguous() copy"));
  }
  // Copy-on-write storage becomes its own here, on the caller's thread, if it will be written.
  void* data = access_ == Access::kRead ? const_cast<void*>(tensor_.const_data_ptr())
                                        : tensor_.mutable_data_ptr();
  view_ = {static_cast<char*>(data), tensor_.sizes().vec(), tensor_.strides().vec(),
           static_cast<size_t>(tensor_.element_size())};
  int64_t span = 1;  // torch's strides are never negative
  for (size_t d = 0; d < view_.sizes.size(); ++d) {
    span += (view_.sizes[d] - 1) * view_.strides[d];
  }
  extentBegin_ = view_.data;
  extentEnd_ = view_.data + static_cast<size_t>(span) * view_.elementBytes;
  address_ = data;
  const bool lazy = tensor_.is_conj() || tensor_.is_neg();
  if (lazy && !canResolve(dtype_)) {
    refuse(operation, str(argument, " is a conjugated or negated view of ", dtypeName(tensor_),
                          "; call .resolve_conj().resolve_neg() on it first"));
  }
  if (lazy || !tensor_.is_contiguous()) useTemporary();
}

bool Staged::sharesMemory(const Staged& other) const {
  return extentBegin_ < other.extentEnd_ && other.extentBegin_ < extentEnd_;
}

void Staged::useTemporary() {
  if (hasTemporary() || count_ == 0) return;
  temporary_ = allocateHost(count_ * view_.elementBytes);
  address_ = temporary_.get();
}

void Staged::load() const {
  if (!hasTemporary() || access_ == Access::kWrite) return;
  packStrided(view_, temporary_.get());
  applyLazyBits();
}

void Staged::store() const {
  if (!hasTemporary() || access_ == Access::kRead) return;
  applyLazyBits();
  unpackStrided(temporary_.get(), view_);
}

// Conjugated and negated views keep the plain values in memory and a bit that says "conjugate on
// reading"; both are their own inverse, so the same loop serves both ways.
void Staged::applyLazyBits() const {
  if (!tensor_.is_conj() && !tensor_.is_neg()) return;
  const bool isDouble = dtype_ == DType::kComplex128 || dtype_ == DType::kFloat64;
  const bool complexElements = isComplex(dtype_);
  const size_t values = count_ * (complexElements ? 2 : 1);
  auto negate = [&](size_t first, size_t step) {
    if (isDouble) {
      negateEvery(reinterpret_cast<double*>(temporary_.get()), values, first, step);
    } else {
      negateEvery(reinterpret_cast<float*>(temporary_.get()), values, first, step);
    }
  };
  if (tensor_.is_conj()) negate(1, 2);
  if (tensor_.is_neg()) negate(0, 1);
}

void load(const std::vector<Staged>& staged) {
  for (const Staged& one : staged) one.load();
}

void store(const std::vector<Staged>& staged) {
  for (const Staged& one : staged) one.store();
}

std::vector<Staged> stageAll(const char* operation, const char* argument,
                             const std::vector<at::Tensor>& tensors, Staged::Access access) {
  std::vector<Staged> staged;
  staged.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    staged.emplace_back(operation, argument, tensor, access);
  }
  return staged;
}

}  // namespace taco
