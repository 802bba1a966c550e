// More elements than an int counts. The memory is 4 MiB mapped over and over, so that the test
// needs address space and not gigabytes; the operations are idempotent, so that meeting the same
// memory again changes nothing; only the last page is memory of its own.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "csrc/data/reduce.h"
#include "tests/csrc/catch.h"

namespace taco {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kTile = size_t{4} << 20;
constexpr size_t kTiles = 513;  // 2 GiB and one
constexpr size_t kBytes = kTile * kTiles + kPage;

class Tiled {
 public:
  Tiled() {
    const int file = memfd_create("taco-large-test", 0);
    REQUIRE(file >= 0);
    REQUIRE(ftruncate(file, kTile + kPage) == 0);
    void* space =
        mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(space != MAP_FAILED);
    data_ = static_cast<uint8_t*>(space);
    for (size_t tile = 0; tile < kTiles; ++tile) mapAt(tile * kTile, kTile, file, 0);
    mapAt(kTiles * kTile, kPage, file, kTile);
    close(file);
  }
  ~Tiled() { munmap(data_, kBytes); }
  Tiled(const Tiled&) = delete;

  uint8_t* data() { return data_; }
  uint8_t& last() { return data_[kBytes - 1]; }

 private:
  void mapAt(size_t at, size_t bytes, int file, size_t offset) {
    void* mapped = mmap(data_ + at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
                        static_cast<off_t>(offset));
    REQUIRE(mapped == data_ + at);
  }
  uint8_t* data_ = nullptr;
};

TEST_CASE("reduce: more than 2^31 elements") {
  static_assert(kBytes > size_t{1} << 31);
  Tiled a;
  Tiled b;
  a.data()[0] = 0x0F;
  b.data()[0] = 0xF0;
  a.last() = 0x21;
  b.last() = 0x42;
  const void* srcs[] = {a.data(), b.data()};
  reduce(a.data(), srcs, 2, kBytes, onlyLevel(ReduceOp::kBor, DType::kUInt8, 2));
  CHECK(a.data()[0] == 0xFF);
  CHECK(a.data()[1] == 0);
  CHECK(a.last() == 0x63);

  b.last() = 0x70;
  reduce(a.data(), srcs, 2, kBytes, onlyLevel(ReduceOp::kMax, DType::kUInt8, 2));
  CHECK(a.last() == 0x70);

  a.data()[7] = 9;
  a.last() = 77;
  copyBytes(b.data(), a.data(), kBytes);
  CHECK(b.data()[7] == 9);
  CHECK(b.last() == 77);
}

}  // namespace
}  // namespace taco
