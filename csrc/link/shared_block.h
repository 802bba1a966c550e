#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace taco {

// Memory that every member of a link sees, for buffers that need not be copied into slots: one
// area of `bytes` bytes for each member, in a part of the link's own segment file that was added
// for it. No file of its own, so no name, no owner to check, and nothing to leave behind.
//
//   | header: who has given its area back | area of member 0 | area of member 1 | ...
//
// The mapping lives as long as anybody in this process refers to the block, which may be longer
// than the link.
class SharedBlock {
 public:
  // Of a block in the file.
  static size_t fileBytes(size_t bytes, int members);

  // Maps what begins at `fileOffset` (whole pages). Throws kSystem.
  SharedBlock(int fd, size_t fileOffset, size_t bytes, int members);
  ~SharedBlock();
  SharedBlock(const SharedBlock&) = delete;

  size_t bytes() const { return bytes_; }
  char* area(int member) const;

  // Where [data, data + bytes) begins in the member's area, if it lies there.
  std::optional<uint64_t> offsetOf(int member, const void* data, size_t bytes) const;

  // Nobody in this process uses the member's area any more. Every member says so for its own.
  void giveBack(int member);
  bool allGivenBack() const;
  // Returns the pages of a block that all have given back to the system.
  void dropPages(int fd) const;

 private:
  std::atomic<uint32_t>& returned(int member) const;

  size_t fileOffset_;
  size_t bytes_;
  int members_;
  char* base_;
};

}  // namespace taco
