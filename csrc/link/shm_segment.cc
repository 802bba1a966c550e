#include "csrc/link/shm_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <thread>

#include "csrc/base/fault_point.h"
#include "csrc/base/format.h"
#include "csrc/base/process_id.h"
#include "csrc/base/rounding.h"
#include "csrc/base/wait.h"
#include "csrc/topology/node_proof.h"
#include "csrc/topology/own_file.h"
#include "csrc/topology/shm_file.h"

namespace taco {
namespace {

constexpr uint64_t kMagic = 0x5441434f53484d31;  // "TACOSHM1"
constexpr size_t kPage = 4096;
constexpr size_t kTokenDigits = 32;
constexpr const char* kLeft = "has left the group (destroy_process_group)";

constexpr size_t kLinesBytes = 2 * ShmSegment::Line::kPerSlot * sizeof(ShmSegment::Line);

size_t controlBytes(int members) {
  const size_t sizes = 2 * 2 * static_cast<size_t>(members) * sizeof(uint64_t);
  return roundUp(sizeof(ShmSegment::Control) + kLinesBytes + sizes, kPage);
}

size_t areaBytes(const ShmSegment::Layout& layout) {
  return controlBytes(layout.members) + 2 * roundUp(layout.slotBytes, kPage);
}

// What the first member has put into the store.
std::string announced(const std::string& key, KeyValueStore& store, int maker,
                      const Deadline& deadline) {
  try {
    return store.get(key, deadline);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
    throw Error(ErrorCode::kTimeout,
                str("making the group Timed out after ", deadline.budget().count(), " ms: rank ",
                    maker, " did not make the shared segment of its node"),
                maker);
  }
}

}  // namespace

struct ShmSegment::Header {
  uint64_t magic;
  uint64_t totalBytes;
  char token[kTokenDigits];  // random, and told in the store
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
int ShmSegment::create(const std::string& path, const Layout& layout, const std::string& token,
                       std::string* whyNot) {
  const int fd = makeShmFile(path, whyNot);
  if (fd < 0) return -1;
  const size_t bytes = layout.totalBytes();
  const int result = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  if (result != 0) {
    *whyNot = str("cannot reserve ", bytes, " bytes in ", kShmDirectory, ": ",
                  std::strerror(result), " (docker's default /dev/shm is 64 MB: --shm-size)");
    ::unlink(path.c_str());
    ::close(fd);
    return -1;
  }
  // The rest of the header begins as the zeros that a new file is made of.
  Header header{};
  header.magic = kMagic;
  header.totalBytes = bytes;
  std::memcpy(header.token, token.data(), kTokenDigits);
  const size_t known = offsetof(Header, failed);
  if (::pwrite(fd, &header, known, 0) != static_cast<ssize_t>(known)) {
    *whyNot = str("cannot write ", path, ": ", std::strerror(errno));
    ::unlink(path.c_str());
    ::close(fd);
    return -1;
  }
  return fd;
}

bool ShmSegment::isOurs(const Header& header, const Layout& layout, const std::string& token) {
  return header.magic == kMagic && header.totalBytes == layout.totalBytes() &&
         token.compare(0, std::string::npos, header.token, kTokenDigits) == 0;
}

std::unique_ptr<ShmSegment> ShmSegment::meet(const std::string& key, KeyValueStore& store,
                                             const Layout& layout,
                                             const std::vector<int>& members, int member,
                                             const Deadline& deadline, std::string* whyNot) {
  std::string path;
  std::string token;
  int fd = -1;
  std::optional<ShmFileInUse> inUse;
  if (member == 0) {
    path = str(kShmDirectory, "/", kSegmentPrefix, randomHex(16));
    token = randomHex(kTokenDigits / 2);
    inUse.emplace(path);
    fd = create(path, layout, token, whyNot);
    try {
      faultPoint("init.segment_made");
      store.set(key, fd < 0 ? "no " + *whyNot : str("at ", token, " ", path));
    } catch (...) {
      if (fd >= 0) ::unlink(path.c_str());
      if (fd >= 0) ::close(fd);
      throw;
    }
    if (fd < 0) return nullptr;
  } else {
    const std::string answer = announced(key, store, members[0], deadline);
    if (answer.rfind("no ", 0) == 0) {
      *whyNot = answer.substr(3);
      return nullptr;
    }
    const size_t pathAt = 3 + kTokenDigits + 1;
    if (answer.rfind("at ", 0) != 0 || answer.size() <= pathAt || answer[pathAt - 1] != ' ') {
      throw Error(ErrorCode::kPeerFailed,
                  str("what rank ", members[0], " says in the store of the shared segment makes no "
                      "sense: do all ranks run the same version of torch-taco?"),
                  members[0]);
    }
    token = answer.substr(3, kTokenDigits);
    path = answer.substr(pathAt);
    std::string trouble;
    inUse.emplace(path);
    fd = openOwnFile(path, kSegmentPrefix, O_RDWR, layout.totalBytes(), &trouble);
    if (fd < 0) {
      throw Error(ErrorCode::kPeerFailed,
                  str("the shared segment that rank ", members[0], " has made cannot be used: ",
                      trouble),
                  members[0]);
    }
  }
  void* base = ::mmap(nullptr, layout.totalBytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    const int error = errno;
    if (member == 0) ::unlink(path.c_str());
    ::close(fd);
    throw systemError(str("cannot map ", layout.totalBytes(), " bytes of ", path), error);
  }
  if (!isOurs(*static_cast<const Header*>(base), layout, token)) {
    ::munmap(base, layout.totalBytes());
    ::close(fd);
    throw Error(ErrorCode::kPeerFailed,
                str(path, " is not the shared segment that rank ", members[0], " has made"),
                members[0]);
  }
  std::unique_ptr<ShmSegment> segment(
      new ShmSegment(fd, static_cast<char*>(base), layout, member));
  faultPoint("init.attaching");
  segment->control(member).attached.store(1);
  try {
    segment->waitForAll(members, deadline);
  } catch (...) {
    ::unlink(path.c_str());
    throw;
  }
  ::unlink(path.c_str());  // whoever is first
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
}

// Until every member has attached. Whoever has, and is gone again, is noticed at once.
void ShmSegment::waitForAll(const std::vector<int>& members, const Deadline& deadline) {
  auto lookAt = Clock::now() + kSleepSlice;
  for (;;) {
    std::string missing;
    for (int m = 0; m < layout_.members; ++m) {
      if (control(m).attached.load() == 0) missing += str(missing.empty() ? "" : ", ", members[m]);
    }
    // First: who attached early may be in its first operation, and that may have failed already.
    if (missing.empty()) return;
    if (const auto why = failure()) throw *why;
    const auto now = Clock::now();
    for (int m = 0; now >= lookAt && m < layout_.members; ++m) {
      const char* const gone = control(m).attached.load() == 0 ? nullptr : whyGone(m);
      if (m == member_ || gone == nullptr) continue;
      throw Error(ErrorCode::kPeerFailed,
                  str("making the group failed: rank ", members[m],
                      gone == kLeft ? " has given up" : " died (its process is gone)",
                      " while rank ", members[member_], " waited for rank(s) ", missing,
                      " to attach to the shared segment"),
                  members[m]);
    }
    if (now >= lookAt) lookAt = now + kSleepSlice;
    if (deadline.expired()) {
      throw Error(ErrorCode::kTimeout,
                  str("making the group Timed out after ", deadline.budget().count(),
                      " ms: rank(s) ", missing, " did not attach to the shared segment"));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

size_t ShmSegment::grow(size_t bytes) {
  struct stat facts {};
  if (::fstat(fd_, &facts) != 0) throw systemError("cannot ask for the segment's size", errno);
  const size_t end = roundUp(static_cast<size_t>(facts.st_size), kPage);
  const int result = ::posix_fallocate(fd_, static_cast<off_t>(end), static_cast<off_t>(bytes));
  if (result != 0) {
    // What was reserved before the room ended; the others have not mapped anything of it.
    if (::ftruncate(fd_, static_cast<off_t>(end)) != 0) throw systemError("cannot shrink", errno);
    throw systemError(str("cannot reserve ", bytes, " bytes in ", kShmDirectory,
                          " (docker's default /dev/shm is 64 MB: --shm-size)"),
                      result);
  }
  return end;
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
  return reinterpret_cast<uint64_t*>(area(member) + sizeof(Control) + kLinesBytes) +
         static_cast<size_t>(parity) * 2 * static_cast<size_t>(layout_.members);
}

ShmSegment::Line* ShmSegment::lines(int member, int parity) {
  return reinterpret_cast<Line*>(area(member) + sizeof(Control)) +
         static_cast<size_t>(parity) * Line::kPerSlot;
}

char* ShmSegment::slot(int member, int parity) {
  return area(member) + controlBytes(layout_.members) +
         static_cast<size_t>(parity) * roundUp(layout_.slotBytes, kPage);
}

const char* ShmSegment::whyGone(int member) const {
  const Control& other = *reinterpret_cast<const Control*>(area(member));
  if (other.left.load() != 0) return kLeft;
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
  const char* const text = header().reason;
  const std::string reason(text, strnlen(text, sizeof(header().reason)));
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
