#include "torch_ext/arguments.h"

#include "csrc/base/format.h"

namespace taco {

void requireCount(const char* operation, const char* argument, size_t count, size_t expected) {
  if (count == expected) return;
  refuse(operation, str(argument, " has ", count, " tensors where ", expected, " are needed"));
}

void requireNumel(const char* operation, const std::string& argument, const at::Tensor& tensor,
                  int64_t numel, const std::string& because) {
  if (tensor.numel() == numel) return;
  refuse(operation, str(argument, " of shape ", shapeOf(tensor), " has ", tensor.numel(),
                        " elements where ", numel, " are needed: ", because));
}

void requireWhole(const char* operation, const char* whole, const at::Tensor& all,
                  const char* part, const at::Tensor& one, int ranks) {
  requireNumel(operation, whole, all, one.numel() * ranks,
               str(ranks, " ranks times the ", one.numel(), " of ", part, " ", shapeOf(one)));
}

std::vector<Buffer> buffersOf(const std::vector<Staged>& staged) {
  std::vector<Buffer> buffers;
  buffers.reserve(staged.size());
  for (const Staged& one : staged) buffers.push_back(one.buffer());
  return buffers;
}

std::vector<ConstBuffer> constBuffersOf(const std::vector<Staged>& staged) {
  std::vector<ConstBuffer> buffers;
  buffers.reserve(staged.size());
  for (const Staged& one : staged) buffers.push_back(one.constBuffer());
  return buffers;
}

std::vector<Buffer> equalSlices(const Buffer& whole, int parts) {
  std::vector<Buffer> slices;
  const size_t each = whole.count / static_cast<size_t>(parts);
  for (int i = 0; i < parts; ++i) {
    slices.push_back(whole.slice(each * static_cast<size_t>(i), each));
  }
  return slices;
}

}  // namespace taco
