#include "csrc/data/copy.h"

#include <cstdint>
#include <string>
#include <vector>

#include "tests/csrc/catch.h"
#include "tests/csrc/data/simd_targets.h"

namespace taco {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr size_t kMargin = 192;
constexpr uint8_t kSentinel = 0x5A;

// Copies `bytes` with `copy` and returns what went wrong, if anything.
template <class Copy>
std::string problemWith(const Copy& copy, size_t bytes, size_t dstOffset, size_t srcOffset) {
  Bytes from(kMargin + bytes + kMargin);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 31 + i / 251);
  const Bytes fromBefore = from;
  Bytes to(kMargin + bytes + kMargin, kSentinel);
  copy(to.data() + dstOffset, from.data() + srcOffset, bytes);

  const std::string where = std::to_string(bytes) + " bytes, offsets " + std::to_string(dstOffset) +
                            " and " + std::to_string(srcOffset);
  if (from != fromBefore) return where + ": the source changed";
  for (size_t i = 0; i < to.size(); ++i) {
    const bool inside = i >= dstOffset && i < dstOffset + bytes;
    const uint8_t want = inside ? from[srcOffset + i - dstOffset] : kSentinel;
    if (to[i] != want) return where + ": wrong at byte " + std::to_string(i);
  }
  return "";
}

template <class Copy>
int sweep(const Copy& copy) {
  std::vector<size_t> sizes;
  for (size_t bytes = 0; bytes <= 257; ++bytes) sizes.push_back(bytes);
  for (size_t around : {512u, 768u, 1024u, 4096u, 65536u}) {
    sizes.insert(sizes.end(), {around - 1, around, around + 1});
  }
  int compared = 0;
  const int targets = testing::forEachTarget([&](const char* target) {
    for (size_t bytes : sizes) {
      for (size_t dstOffset : {64u, 65u, 100u, 127u}) {
        for (size_t srcOffset : {64u, 67u, 127u}) {
          const std::string problem = problemWith(copy, bytes, dstOffset, srcOffset);
          if (!problem.empty()) FAIL(target << ": " << problem);
          ++compared;
        }
      }
    }
  });
  CHECK(targets >= 1);
  return compared;
}

TEST_CASE("copy: copyBytes moves exactly the bytes it is given") { CHECK(sweep(copyBytes) > 1000); }

TEST_CASE("copy: gatherBytes moves exactly the bytes it is given") {
  CHECK(sweep(gatherBytes) > 1000);
}

TEST_CASE("copy: onto itself does nothing, nowhere to nowhere is fine") {
  Bytes memory(1000, 7);
  const Bytes before = memory;
  copyBytes(memory.data(), memory.data(), memory.size());
  gatherBytes(memory.data(), memory.data(), memory.size());
  CHECK(memory == before);
  copyBytes(nullptr, nullptr, 0);
  gatherBytes(memory.data(), nullptr, 0);
  copyBytes(memory.data(), nullptr, 0);
  CHECK(memory == before);
}

}  // namespace
}  // namespace taco
