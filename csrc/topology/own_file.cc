#include "csrc/topology/own_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "csrc/base/format.h"
#include "csrc/topology/node_proof.h"

namespace taco {
namespace {

constexpr size_t kDigits = 32;

bool isNamed(const std::string& path, const std::string& prefix) {
  const std::string begin = str(kShmDirectory, "/", prefix);
  return path.size() == begin.size() + kDigits && path.compare(0, begin.size(), begin) == 0 &&
         path.find_first_not_of("0123456789abcdef", begin.size()) == std::string::npos;
}

}  // namespace

int openOwnFile(const std::string& path, const std::string& prefix, int flags, size_t leastBytes,
                std::string* whyNot) {
  if (!isNamed(path, prefix)) {
    *whyNot = str("'", path.substr(0, 100), "' is not the name of a file of TACO's");
    return -1;
  }
  // Non-blocking: a pipe of that name would keep us waiting for its other end.
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) {
    *whyNot = str("cannot open ", path, ": ", std::strerror(errno));
    return -1;
  }
  struct stat facts {};
  const char* trouble = nullptr;
  if (::fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode)) {
    trouble = "is not a file";
  } else if (facts.st_uid != ::geteuid()) {
    trouble = "belongs to another user";
  } else if ((facts.st_mode & 0077) != 0) {
    trouble = "is open to other users";
  } else if (static_cast<size_t>(facts.st_size) < leastBytes) {
    trouble = "is too small";
  }
  if (trouble == nullptr) return fd;
  ::close(fd);
  *whyNot = str(path, " ", trouble);
  return -1;
}

}  // namespace taco
