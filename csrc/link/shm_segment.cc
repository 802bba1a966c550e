#include "csrc/link/shm_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "csrc/base/format.h"
#include "csrc/base/process_id.h"
#include "csrc/topology/node_proof.h"

namespace taco {
namespace {

constexpr uint64_t kMagic = 0x5441434f53484d31;  // "TACOSHM1"
constexpr size_t kPage = 4096;

size_t roundUp(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

size_t controlBytes(int members) {
  const size_t sizes = 2 * 2 * static_cast<size_t>(members) * sizeof(uint64_t);
  return roundUp(sizeof(ShmSegment::Control) + sizes, kPage);
}

size_t areaBytes(const ShmSegment::Layout& layout) {
  return controlBytes(layout.members) + 2 * roundUp(layout.slotBytes, kPage);
}

}  // namespace

struct ShmSegment::Header {
  uint64_t magic;
  uint64_t totalBytes;
  std::atomic<uint32_t> numAttached;
  // 0 healthy, 1 somebody is writing the reason below, 2 failed.
  alignas(64) std::atomic<uint32_t> failed;
  int32_t failedRank;
  int32_t failedCode;
  char reason[1024];
};

size_t ShmSegment::Layout::totalBytes() const {
  return kPage + static_cast<size_t>(members) * areaBytes(*this);
}

// Reserves the pages, since writing to a hole of a full /dev/shm would be a SIGBUS later.
int ShmSegment::create(const std::string& path, const Layout& layout, std::string* whyNot) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    *whyNot = str("cannot create ", path, ": ", std::strerror(errno));
    return -1;
  }
  const size_t bytes = layout.totalBytes();
  const int result = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  if (result != 0) {
    *whyNot = str("cannot reserve ", bytes, " bytes in ", kShmDirectory, ": ",
                  std::strerror(result), " (docker's default /dev/shm is 64 MB: --shm-size)");
    ::unlink(path.c_str());
    ::close(fd);
    return -1;
  }
  return fd;
}

std::unique_ptr<ShmSegment> ShmSegment::meet(const std::string& key, KeyValueStore& store,
                                             const Layout& layout,
                                             const std::vector<int>& members, int member,
                                             const Deadline& deadline, std::string* whyNot) {
  std::string path;
  int fd = -1;
  if (member == 0) {
    path = str(kShmDirectory, "/taco-", randomHex(16));
    fd = create(path, layout, whyNot);
    store.set(key, fd < 0 ? "no " + *whyNot : "at " + path);
    if (fd < 0) return nullptr;
  } else {
    const std::string answer = store.get(key, deadline);
    if (answer.rfind("at ", 0) != 0) {
      *whyNot = answer.substr(3);
      return nullptr;
    }
    path = answer.substr(3);
    fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) throw systemError(str("cannot open the shared segment ", path), errno);
  }
  void* base = ::mmap(nullptr, layout.totalBytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    const int error = errno;
    if (member == 0) ::unlink(path.c_str());
    ::close(fd);
    throw systemError(str("cannot map ", layout.totalBytes(), " bytes of ", path), error);
  }
  std::unique_ptr<ShmSegment> segment(
      new ShmSegment(fd, static_cast<char*>(base), layout, member));
  Header& header = segment->header();
  if (header.numAttached.fetch_add(1) + 1 == static_cast<uint32_t>(layout.members)) {
    ::unlink(path.c_str());
  }
  auto missing = [&] {
    std::string names;
    for (int m = 0; m < layout.members; ++m) {
      if (!segment->control(m).attached.load()) names += str(names.empty() ? "" : ", ", members[m]);
    }
    return names;
  };
  while (header.numAttached.load() < static_cast<uint32_t>(layout.members)) {
    if (const auto why = segment->failure()) throw *why;
    if (deadline.expired()) {
      ::unlink(path.c_str());
      throw Error(ErrorCode::kTimeout,
                  str("making the group Timed out after ", deadline.budget().count(),
                      " ms: rank(s) ", missing(), " did not attach to the shared segment"));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return segment;
}

ShmSegment::ShmSegment(int fd, char* base, const Layout& layout, int member)
    : fd_(fd), base_(base), layout_(layout), member_(member), creatorPid_(::getpid()) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = member;
  lock.l_len = 1;
  if (::fcntl(fd_, F_SETLK, &lock) != 0) {
    const int error = errno;
    ::munmap(base_, layout_.totalBytes());
    ::close(fd_);
    throw systemError("cannot lock this rank's byte of the shared segment", error);
  }
  Control& mine = control(member);
  std::strncpy(mine.processId, processId().c_str(), sizeof(mine.processId) - 1);
  mine.attached.store(1);
}

void ShmSegment::leave() {
  if (::getpid() != creatorPid_) return;
  control(member_).left.store(1);
  wakeEverybody();
}

ShmSegment::~ShmSegment() {
  leave();
  ::munmap(base_, layout_.totalBytes());
  ::close(fd_);  // in a forked child this does not touch the parent's lock
}

char* ShmSegment::area(int member) const {
  return base_ + kPage + static_cast<size_t>(member) * areaBytes(layout_);
}

ShmSegment::Header& ShmSegment::header() const { return *reinterpret_cast<Header*>(base_); }

uint64_t* ShmSegment::sizes(int member, int parity) {
  return reinterpret_cast<uint64_t*>(area(member) + sizeof(Control)) +
         static_cast<size_t>(parity) * 2 * static_cast<size_t>(layout_.members);
}

char* ShmSegment::slot(int member, int parity) {
  return area(member) + controlBytes(layout_.members) +
         static_cast<size_t>(parity) * roundUp(layout_.slotBytes, kPage);
}

const char* ShmSegment::whyGone(int member) const {
  const Control& other = *reinterpret_cast<const Control*>(area(member));
  if (other.left.load() != 0) return "has left the group (destroy_process_group)";
  // Ranks that are threads of this process: a process sees no lock of its own.
  if (other.processId == processId()) return nullptr;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = member;
  lock.l_len = 1;
  if (::fcntl(fd_, F_GETLK, &lock) != 0) return nullptr;  // cannot know: the deadline decides
  return lock.l_type == F_UNLCK ? "died (its process is gone)" : nullptr;
}

void ShmSegment::fail(const Error& why, int rank) {
  uint32_t healthy = 0;
  if (!header().failed.compare_exchange_strong(healthy, 1)) return;
  header().failedRank = rank;
  header().failedCode = static_cast<int32_t>(why.code());
  std::strncpy(header().reason, why.what(), sizeof(header().reason) - 1);
  header().failed.store(2, std::memory_order_release);
  wakeEverybody();
}

std::optional<Error> ShmSegment::failure() const {
  if (header().failed.load(std::memory_order_acquire) != 2) return std::nullopt;
  const auto code = static_cast<ErrorCode>(header().failedCode);
  const int rank = header().failedRank;
  const std::string reason = header().reason;
  // A mismatch is everybody's: the text already says who did what.
  if (code == ErrorCode::kMismatch) return Error(code, reason, rank);
  return Error(ErrorCode::kPeerFailed, str("rank ", rank, " failed: ", reason), rank);
}

void ShmSegment::wakeEverybody() {
  for (int m = 0; m < layout_.members; ++m) {
    control(m).arrived.wakeAll();
    control(m).finished.wakeAll();
  }
}

}  // namespace taco
