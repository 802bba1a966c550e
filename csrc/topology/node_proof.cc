#include "csrc/topology/node_proof.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "csrc/base/format.h"
#include "csrc/base/process_id.h"
#include "csrc/topology/own_file.h"
#include "csrc/topology/shm_file.h"

namespace taco {

NodeProof::NodeProof() : token_(randomHex(16)), creatorPid_(::getpid()) {
  removeShmLeftovers();
  const std::string path = str(kShmDirectory, "/", kProofPrefix, randomHex(16));
  fd_ = makeShmFile(path, &whyNot_);
  if (fd_ < 0) return;
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
  std::string whyNot;
  const int fd = openOwnFile(path, kProofPrefix, O_RDONLY, token.size(), &whyNot);
  if (fd < 0) return false;
  std::string seen(token.size() + 1, '\0');
  const ssize_t got = ::read(fd, seen.data(), seen.size());
  ::close(fd);
  return got == static_cast<ssize_t>(token.size()) && seen.compare(0, token.size(), token) == 0;
}

}  // namespace taco
