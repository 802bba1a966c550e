// Copies between a strided view and dense memory.
//
// Tensors that are not contiguous travel through a dense temporary, which is filled and emptied on
// the thread that runs the operation. ATen's copy would start an OpenMP team there (its threads
// belong to the thread that first uses them), so the loop is written here: dimensions that follow
// each other in memory are merged, the innermost one is a plain loop over elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace taco {

// A tensor's memory; strides count elements, in the order of `sizes`.
struct StridedView {
  char* data = nullptr;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  size_t elementBytes = 1;  // 1, 2, 4, 8 or 16
};

// view -> dense, in the view's logical (row-major) order.
void packStrided(const StridedView& view, char* dense);

// dense -> view.
void unpackStrided(const char* dense, const StridedView& view);

}  // namespace taco
