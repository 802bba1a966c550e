// Checks that several operations share, and tensors as the lists of buffers that the engine takes.
#pragma once

#include <string>
#include <vector>

#include "torch_ext/tensors.h"

namespace taco {

void requireCount(const char* operation, const char* argument, size_t count, size_t expected);

// `because` says where the number comes from.
void requireNumel(const char* operation, const std::string& argument, const at::Tensor& tensor,
                  int64_t numel, const std::string& because);

// `all` must hold the parts of all ranks, each as large as `one`.
void requireWhole(const char* operation, const char* whole, const at::Tensor& all,
                  const char* part, const at::Tensor& one, int ranks);

std::vector<Buffer> buffersOf(const std::vector<Staged>& staged);
std::vector<ConstBuffer> constBuffersOf(const std::vector<Staged>& staged);
std::vector<Buffer> equalSlices(const Buffer& whole, int parts);

}  // namespace taco
