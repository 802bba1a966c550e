#include "csrc/data/buffer.h"

#include <array>

#include "tests/csrc/catch.h"

namespace taco {
namespace {

TEST_CASE("buffer: bytes and slices count in elements of the dtype") {
  std::array<double, 10> memory{};
  const Buffer buffer{memory.data(), memory.size(), DType::kFloat64};
  CHECK(buffer.bytes() == 80);
  CHECK(buffer.device == Device::kCpu);

  const Buffer part = buffer.slice(3, 4);
  CHECK(part.data == memory.data() + 3);
  CHECK(part.count == 4);
  CHECK(part.bytes() == 32);
  CHECK(part.dtype == DType::kFloat64);
  CHECK(part.slice(1, 0).bytePointer() == reinterpret_cast<char*>(memory.data() + 4));

  const Buffer end = buffer.slice(10, 0);
  CHECK(end.data == memory.data() + 10);
  CHECK(end.bytes() == 0);
}

TEST_CASE("buffer: a slice stays on its device and stream") {
  int stream = 0;
  const Buffer buffer{nullptr, 8, DType::kInt16, Device::kCuda, &stream};
  CHECK(buffer.slice(2, 3).device == Device::kCuda);
  CHECK(buffer.slice(2, 3).stream == &stream);
  const ConstBuffer readable = buffer;
  CHECK(readable.device == Device::kCuda);
  CHECK(readable.slice(0, 1).stream == &stream);
}

TEST_CASE("buffer: an empty tensor's null pointer can be sliced") {
  const Buffer empty{nullptr, 0, DType::kBFloat16};
  CHECK(empty.bytes() == 0);
  CHECK(empty.slice(0, 0).data == nullptr);
}

TEST_CASE("buffer: what may be written may be read") {
  std::array<int32_t, 4> memory{1, 2, 3, 4};
  const auto second = [](ConstBuffer buffer) {
    return *reinterpret_cast<const int32_t*>(buffer.slice(1, 1).bytePointer());
  };
  CHECK(second(Buffer{memory.data(), 4, DType::kInt32}) == 2);
  const std::array<int32_t, 2> fixed{7, 8};
  CHECK(second(ConstBuffer(fixed.data(), 2, DType::kInt32)) == 8);
}

}  // namespace
}  // namespace taco
