#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/abort.h"
#include "csrc/base/deadline.h"
#include "csrc/base/futex.h"
#include "csrc/data/call.h"
#include "csrc/topology/key_value_store.h"

namespace taco {

// One file in /dev/shm, mapped by all members of a link.
//
//   | header | rank 0: control, sizes, slots | rank 1: ... |
//
// A rank's two slots hold what it shows to the others in the current and in the previous step
// (shm_link.h). The file is unlinked as soon as everyone has attached, so nothing is left behind
// however the ranks end. A rank's life is a POSIX record lock on byte `member` of the file: the
// kernel drops it when the process dies, a forked child does not inherit it, and it works across
// pid namespaces. Closing any descriptor of the file would drop it, so there is exactly one.
class ShmSegment {
 public:
  struct Layout {
    int members = 0;
    size_t slotBytes = 0;  // of one of the two slots of a rank
    size_t totalBytes() const;
  };

  // A place in a SharedBlock, or none.
  struct Place {
    uint64_t block = 0;  // counted from 1
    uint64_t offset = 0;
  };

  // The first lines of a rank's area, each on its own cache line where two ranks write or poll.
  struct Control {
    // Steps this rank has put its data in for; beside it, the fingerprint of the operation that
    // began with the last step of each parity.
    alignas(64) SharedCounter arrived;
    uint64_t fingerprint[2];
    Place place[2];  // where this rank's buffer is, if in shared memory
    // Steps this rank has finished: it will not look at anybody's slot of those steps again.
    alignas(64) SharedCounter finished;
    alignas(64) Call calls[2];  // what the fingerprints stand for, for error messages
    char processId[33];         // see base/process_id.h; set before `attached`
    std::atomic<uint32_t> attached;
    std::atomic<uint32_t> left;  // on purpose
  };

  // A cache line that carries data and says by itself when they are there (shm_link_small.cc).
  struct alignas(64) Line {
    static constexpr size_t kDataBytes = 56;
    static constexpr size_t kPerSlot = 19;  // 1064 bytes

    char data[kDataBytes];
    std::atomic<uint64_t> flag;
  };
  static_assert(sizeof(Line) == 64);

  // Collective over `members` (ranks in the group; `member` is this rank's index). The first member
  // makes the file and announces it in the store under `key`. Returns nullptr on all members if it
  // could not be made (`whyNot` says why: no /dev/shm, no room, ...). Throws kTimeout naming the
  // ranks that did not attach.
  static std::unique_ptr<ShmSegment> meet(const std::string& key, KeyValueStore& store,
                                          const Layout& layout, const std::vector<int>& members,
                                          int member, const Deadline& deadline,
                                          std::string* whyNot);
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;

  const Layout& layout() const { return layout_; }
  Control& control(int member) { return *reinterpret_cast<Control*>(area(member)); }
  // sizes(m)[parity * 2 * members + i]: what m sends to i (first half), expects from i (second).
  uint64_t* sizes(int member, int parity);
  char* slot(int member, int parity);
  Line* lines(int member, int parity);  // Line::kPerSlot of them

  // Adds `bytes` bytes to the file; returns where they begin. Throws kSystem where /dev/shm has no
  // room for them. Only one member may do so at a time.
  size_t grow(size_t bytes);
  int file() const { return fd_; }

  // Says that this rank goes on purpose, and will not come to another step; so does the destructor.
  void leave();

  // Null while the member is there; else how it went: "died (its process is gone)" or "has left
  // the group (destroy_process_group)".
  const char* whyGone(int member) const;

  // The first failure of the segment wins; all members see it in their next wait.
  void fail(const Error& why, int rank);
  std::optional<Error> failure() const;

 private:
  struct Header;
  ShmSegment(int fd, char* base, const Layout& layout, int member);
  static int create(const std::string& path, const Layout& layout, const std::string& token,
                    std::string* whyNot);
  static bool isOurs(const Header& header, const Layout& layout, const std::string& token);
  void waitForAll(const std::vector<int>& members, const Deadline& deadline);
  char* area(int member) const;
  Header& header() const;
  void wakeEverybody();

  int fd_;
  char* base_;
  Layout layout_;
  int member_;
  pid_t creatorPid_;
};

}  // namespace taco
