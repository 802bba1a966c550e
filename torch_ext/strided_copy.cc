#include "torch_ext/strided_copy.h"

#include <cstring>

#include "csrc/base/error.h"
#include "csrc/base/format.h"

namespace taco {
namespace {

struct Bytes16 {
  uint64_t low;
  uint64_t high;
};

// The view with dimensions of size 1 dropped and neighbours that form one run merged; the last
// dimension is the innermost. Empty `sizes`: one element.
StridedView merged(const StridedView& view) {
  StridedView out{view.data, {}, {}, view.elementBytes};
  for (size_t d = 0; d < view.sizes.size(); ++d) {
    if (view.sizes[d] == 1) continue;
    const bool continues =
        !out.sizes.empty() && out.strides.back() == view.strides[d] * view.sizes[d];
    if (continues) {
      out.sizes.back() *= view.sizes[d];
      out.strides.back() = view.strides[d];
    } else {
      out.sizes.push_back(view.sizes[d]);
      out.strides.push_back(view.strides[d]);
    }
  }
  return out;
}

struct Pack {
  template <typename T>
  static void move(char* strided, char* dense) {
    std::memcpy(dense, strided, sizeof(T));
  }
  static void moveRun(char* strided, char* dense, size_t bytes) {
    std::memcpy(dense, strided, bytes);
  }
};

struct Unpack {
  template <typename T>
  static void move(char* strided, char* dense) {
    std::memcpy(strided, dense, sizeof(T));
  }
  static void moveRun(char* strided, char* dense, size_t bytes) {
    std::memcpy(strided, dense, bytes);
  }
};

template <typename T, typename Direction>
void copyRow(char* strided, char* dense, int64_t count, int64_t stride) {
  if (stride == 1) {
    Direction::moveRun(strided, dense, static_cast<size_t>(count) * sizeof(T));
    return;
  }
  const int64_t step = stride * static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; i < count; ++i) {
    Direction::template move<T>(strided, dense);
    strided += step;
    dense += sizeof(T);
  }
}

template <typename T, typename Direction>
void copyAll(const StridedView& view, char* dense) {
  if (view.sizes.empty()) {
    Direction::template move<T>(view.data, dense);
    return;
  }
  const size_t inner = view.sizes.size() - 1;
  const size_t rowBytes = static_cast<size_t>(view.sizes[inner]) * sizeof(T);
  std::vector<int64_t> index(inner, 0);  // an odometer over the outer dimensions
  char* row = view.data;
  while (true) {
    copyRow<T, Direction>(row, dense, view.sizes[inner], view.strides[inner]);
    dense += rowBytes;
    size_t d = inner;
    while (d > 0) {
      --d;
      row += view.strides[d] * static_cast<int64_t>(sizeof(T));
      if (++index[d] < view.sizes[d]) break;
      row -= view.strides[d] * view.sizes[d] * static_cast<int64_t>(sizeof(T));
      index[d] = 0;
      if (d == 0) return;
    }
    if (inner == 0) return;
  }
}

template <typename Direction>
void copyView(const StridedView& view, char* dense) {
  for (const int64_t size : view.sizes) {
    if (size == 0) return;
  }
  const StridedView flat = merged(view);
  switch (view.elementBytes) {
    case 1: return copyAll<uint8_t, Direction>(flat, dense);
    case 2: return copyAll<uint16_t, Direction>(flat, dense);
    case 4: return copyAll<uint32_t, Direction>(flat, dense);
    case 8: return copyAll<uint64_t, Direction>(flat, dense);
    case 16: return copyAll<Bytes16, Direction>(flat, dense);
    default: break;
  }
  throw Error(ErrorCode::kInvalidArgument,
              str("cannot copy elements of ", view.elementBytes, " bytes: 1, 2, 4, 8 or 16"));
}

}  // namespace

void packStrided(const StridedView& view, char* dense) { copyView<Pack>(view, dense); }

void unpackStrided(const char* dense, const StridedView& view) {
  copyView<Unpack>(view, const_cast<char*>(dense));  // Unpack only reads `dense`
}

}  // namespace taco
