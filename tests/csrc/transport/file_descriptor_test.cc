#include "csrc/transport/file_descriptor.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "tests/csrc/catch.h"

namespace taco {
namespace {

bool isOpen(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST_CASE("a descriptor is closed with its owner, and moves with it") {
  const int fd = ::dup(0);
  {
    FileDescriptor first(fd);
    FileDescriptor second(std::move(first));
    CHECK(!first);
    CHECK(second.get() == fd);
    FileDescriptor third;
    third = std::move(second);
    CHECK(isOpen(fd));
    CHECK(third.get() == fd);
  }
  CHECK(!isOpen(fd));
}

TEST_CASE("a forked child has no copy, and closes nothing that is its own") {
  FileDescriptor fd(::dup(0));
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int code = isOpen(fd.get()) ? 1 : 0;
    const int own = ::dup(0);  // gets the same number
    if (own != fd.get()) code = 2;
    fd.close();
    if (!isOpen(own)) code = 3;
    ::_exit(code);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(isOpen(fd.get()));
}

}  // namespace
}  // namespace taco
