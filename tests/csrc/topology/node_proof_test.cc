#include "csrc/topology/node_proof.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "csrc/base/process_id.h"
#include "tests/csrc/catch.h"

namespace taco {
namespace {

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// A proof as another process may have left it.
struct Leftover {
  explicit Leftover(bool old) : path(std::string(kShmDirectory) + "/taco-proof-" + randomHex(16)) {
    fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (old) {
      const timespec longAgo[2] = {{1000, 0}, {1000, 0}};
      ::futimens(fd, longAgo);
    }
  }
  ~Leftover() {
    ::unlink(path.c_str());
    ::close(fd);
  }
  std::string path;
  int fd = -1;
};

}  // namespace

TEST_CASE("proof: the token is read back, and goes with the object") {
  std::string path;
  {
    const NodeProof proof;
    REQUIRE(proof.whyNot() == "");
    path = proof.path();
    CHECK(NodeProof::holds(path, proof.token()));
    CHECK_FALSE(NodeProof::holds(path, std::string(proof.token().size(), '0')));
    CHECK_FALSE(NodeProof::holds(path, proof.token() + "0"));
    CHECK_FALSE(NodeProof::holds(path + "x", proof.token()));
  }
  CHECK_FALSE(exists(path));
}

TEST_CASE("proof: what a killed process left is removed, what somebody may hold is not") {
  const Leftover abandoned(true);
  const Leftover held(true);
  REQUIRE(::flock(held.fd, LOCK_EX) == 0);
  const Leftover justMade(false);
  const NodeProof first;
  const NodeProof second;
  CHECK_FALSE(exists(abandoned.path));
  CHECK(exists(held.path));
  CHECK(exists(justMade.path));
  CHECK(exists(first.path()));
  CHECK(exists(second.path()));
}

}  // namespace taco
