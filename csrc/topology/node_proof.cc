#include "csrc/topology/node_proof.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "csrc/base/format.h"
#include "csrc/base/process_id.h"

namespace taco {

NodeProof::NodeProof() : token_(randomHex(16)), creatorPid_(::getpid()) {
  const std::string path = str(kShmDirectory, "/taco-proof-", randomHex(16));
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    whyNot_ = str("cannot create a file in ", kShmDirectory, ": ", std::strerror(errno));
    return;
  }
  const ssize_t wrote = ::write(fd, token_.data(), token_.size());
  const int error = wrote < 0 ? errno : ENOSPC;
  ::close(fd);
  if (wrote != static_cast<ssize_t>(token_.size())) {
    whyNot_ = str("cannot write a file in ", kShmDirectory, ": ", std::strerror(error));
    ::unlink(path.c_str());
    return;
  }
  path_ = path;
}

NodeProof::~NodeProof() {
  if (!path_.empty() && ::getpid() == creatorPid_) ::unlink(path_.c_str());
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
