#include "csrc/topology/shm_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <mutex>
#include <set>

#include "csrc/base/format.h"
#include "csrc/topology/node_proof.h"
#include "csrc/topology/own_file.h"

namespace taco {
namespace {

// Where files cannot be made without a name, one is seen for a moment before it is locked.
constexpr time_t kSurelyLockedSeconds = 2;

struct InUse {
  std::mutex mutex;
  std::multiset<std::string> paths;
};
InUse& inUse() {
  static auto* const all = new InUse;  // never destroyed: groups may be made while others end
  return *all;
}

void removeIfAbandoned(const std::string& path) {
  std::lock_guard<std::mutex> lock(inUse().mutex);
  if (inUse().paths.count(path) > 0) return;
  const bool isProof = path.find(kProofPrefix) != std::string::npos;
  std::string whyNot;  // whatever it is, it is not this user's to remove
  const int fd = openOwnFile(path, isProof ? kProofPrefix : kSegmentPrefix, O_RDONLY, 0, &whyNot);
  if (fd < 0) return;
  struct stat facts {};
  if (::fstat(fd, &facts) == 0 && ::time(nullptr) - facts.st_mtime > kSurelyLockedSeconds &&
      ::flock(fd, LOCK_EX | LOCK_NB) == 0) {
    ::unlink(path.c_str());
  }
  ::close(fd);
}

}  // namespace

int makeShmFile(const std::string& path, std::string* whyNot) {
  int fd = ::open(kShmDirectory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) {
    const bool locked = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
    const std::string self = str("/proc/self/fd/", fd);
    if (locked && ::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      return fd;
    }
    ::close(fd);
  }
  fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    *whyNot = str("cannot create ", path, ": ", std::strerror(errno));
    return -1;
  }
  ::flock(fd, LOCK_EX);
  return fd;
}

void removeShmLeftovers() {
  DIR* const folder = ::opendir(kShmDirectory);
  if (folder == nullptr) return;
  while (const dirent* entry = ::readdir(folder)) {
    if (std::strncmp(entry->d_name, kSegmentPrefix, std::strlen(kSegmentPrefix)) != 0) continue;
    removeIfAbandoned(str(kShmDirectory, "/", entry->d_name));
  }
  ::closedir(folder);
}

ShmFileInUse::ShmFileInUse(const std::string& path) : path_(path) {
  std::lock_guard<std::mutex> lock(inUse().mutex);
  inUse().paths.insert(path_);
}

ShmFileInUse::~ShmFileInUse() {
  std::lock_guard<std::mutex> lock(inUse().mutex);
  inUse().paths.erase(inUse().paths.find(path_));
}

}  // namespace taco
