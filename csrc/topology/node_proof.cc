#include "csrc/topology/node_proof.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "csrc/base/format.h"
#include "csrc/base/process_id.h"

namespace taco {

namespace {

constexpr const char* kPrefix = "taco-proof-";

// A proof is locked right after it was made: one that is older and free belongs to nobody alive.
constexpr time_t kSurelyLockedSeconds = 60;

void removeLeftovers() {
  DIR* const folder = ::opendir(kShmDirectory);
  if (folder == nullptr) return;
  while (const dirent* entry = ::readdir(folder)) {
    if (std::strncmp(entry->d_name, kPrefix, std::strlen(kPrefix)) != 0) continue;
    const std::string path = str(kShmDirectory, "/", entry->d_name);
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) continue;
    struct stat facts {};
    if (::fstat(fd, &facts) == 0 && ::time(nullptr) - facts.st_mtime > kSurelyLockedSeconds &&
        ::flock(fd, LOCK_EX | LOCK_NB) == 0) {
      ::unlink(path.c_str());
    }
    ::close(fd);
  }
  ::closedir(folder);
}

}  // namespace

NodeProof::NodeProof() : token_(randomHex(16)), creatorPid_(::getpid()) {
  removeLeftovers();
  const std::string path = str(kShmDirectory, "/", kPrefix, randomHex(16));
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd_ < 0) {
    whyNot_ = str("cannot create a file in ", kShmDirectory, ": ", std::strerror(errno));
    return;
  }
  ::flock(fd_, LOCK_EX);
  const ssize_t wrote = ::write(fd_, token_.data(), token_.size());
  const int error = wrote < 0 ? errno : ENOSPC;
  if (wrote != static_cast<ssize_t>(token_.size())) {
    whyNot_ = str("cannot write a file in ", kShmDirectory, ": ", std::strerror(error));
    ::unlink(path.c_str());
    return;
  }
  path_ = path;
}

NodeProof::~NodeProof() {
  if (!path_.empty() && ::getpid() == creatorPid_) ::unlink(path_.c_str());
  if (fd_ >= 0) ::close(fd_);
}

bool NodeProof::holds(const std::string& path, const std::string& token) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  std::string seen(token.size() + 1, '\0');
  const ssize_t got = ::read(fd, seen.data(), seen.size());
  ::close(fd);
  return got == static_cast<ssize_t>(token.size()) && seen.compare(0, token.size(), token) == 0;
}

}  // namespace taco
