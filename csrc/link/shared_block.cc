#include "csrc/link/shared_block.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>

#include "csrc/base/error.h"
#include "csrc/base/format.h"
#include "csrc/base/rounding.h"

namespace taco {
namespace {

constexpr size_t kPage = 4096;

size_t headerBytes(int members) {
  return roundUp(static_cast<size_t>(members) * sizeof(std::atomic<uint32_t>), kPage);
}

}  // namespace

size_t SharedBlock::fileBytes(size_t bytes, int members) {
  return headerBytes(members) + static_cast<size_t>(members) * roundUp(bytes, kPage);
}

SharedBlock::SharedBlock(int fd, size_t fileOffset, size_t bytes, int members)
    : fileOffset_(fileOffset), bytes_(bytes), members_(members) {
  void* const base = ::mmap(nullptr, fileBytes(bytes, members), PROT_READ | PROT_WRITE, MAP_SHARED,
                            fd, static_cast<off_t>(fileOffset));
  if (base == MAP_FAILED) {
    throw systemError(str("cannot map ", fileBytes(bytes, members), " bytes of shared memory"),
                      errno);
  }
  base_ = static_cast<char*>(base);
}

SharedBlock::~SharedBlock() { ::munmap(base_, fileBytes(bytes_, members_)); }

char* SharedBlock::area(int member) const {
  return base_ + headerBytes(members_) + static_cast<size_t>(member) * roundUp(bytes_, kPage);
}

std::optional<uint64_t> SharedBlock::offsetOf(int member, const void* data, size_t bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(area(member));
  const auto wanted = reinterpret_cast<uintptr_t>(data);
  if (wanted < begin || bytes > bytes_ || wanted - begin > bytes_ - bytes) return std::nullopt;
  return wanted - begin;
}

std::atomic<uint32_t>& SharedBlock::returned(int member) const {
  return reinterpret_cast<std::atomic<uint32_t>*>(base_)[member];
}

void SharedBlock::giveBack(int member) { returned(member).store(1, std::memory_order_release); }

bool SharedBlock::allGivenBack() const {
  for (int m = 0; m < members_; ++m) {
    if (returned(m).load(std::memory_order_acquire) == 0) return false;
  }
  return true;
}

// The header stays: others may still read in it that all have given back.
void SharedBlock::dropPages(int fd) const {
  const size_t header = headerBytes(members_);
  ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(fileOffset_ + header),
              static_cast<off_t>(fileBytes(bytes_, members_) - header));
}

}  // namespace taco
