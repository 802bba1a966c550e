#include "csrc/topology/shm_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "csrc/base/process_id.h"
#include "csrc/topology/node_proof.h"
#include "tests/csrc/catch.h"

namespace taco {
namespace {

std::string newPath() { return std::string(kShmDirectory) + "/" + kSegmentPrefix + randomHex(16); }
bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

void makeOld(int fd) {
  const timespec longAgo[2] = {{1000, 0}, {1000, 0}};
  REQUIRE(::futimens(fd, longAgo) == 0);
}

}  // namespace

TEST_CASE("shm file: it is private, locked, and made only once") {
  const std::string path = newPath();
  std::string whyNot;
  const int fd = makeShmFile(path, &whyNot);
  REQUIRE(fd >= 0);
  struct stat facts {};
  REQUIRE(::stat(path.c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777) == 0600);
  const int other = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  CHECK(::flock(other, LOCK_EX | LOCK_NB) != 0);
  CHECK(makeShmFile(path, &whyNot) == -1);
  CHECK(whyNot.find("cannot create " + path) == 0);
  ::close(other);
  ::unlink(path.c_str());
  ::close(fd);
}

TEST_CASE("shm file: what nobody holds is removed, and nothing else") {
  std::string whyNot;
  const std::string held = newPath();
  const std::string abandoned = newPath();
  const std::string fresh = newPath();
  const std::string attaching = newPath();
  const int heldFd = makeShmFile(held, &whyNot);
  for (const std::string& path : {abandoned, fresh, attaching}) ::close(makeShmFile(path, &whyNot));
  for (const std::string& path : {held, abandoned, attaching}) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    makeOld(fd);
    ::close(fd);
  }
  {
    const ShmFileInUse inUse(attaching);
    removeShmLeftovers();
    CHECK(exists(held));
    CHECK_FALSE(exists(abandoned));
    CHECK(exists(fresh));
    CHECK(exists(attaching));
  }
  removeShmLeftovers();
  CHECK_FALSE(exists(attaching));
  CHECK(exists(held));
  ::close(heldFd);  // as the kernel does for a process that is killed
  removeShmLeftovers();
  CHECK_FALSE(exists(held));
  ::unlink(fresh.c_str());
}

}  // namespace taco
