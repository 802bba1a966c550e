// What another user of the machine, or a lying store, can do to a shared segment: nothing but make
// the group fail with an Error.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <thread>

#include "csrc/base/process_id.h"
#include "csrc/link/shm_segment.h"
#include "csrc/topology/node_proof.h"
#include "tests/csrc/fuzzing.h"
#include "tests/csrc/ranks.h"

namespace taco {
namespace {

using namespace taco::testing;

constexpr uid_t kNobody = 65534;

ShmSegment::Layout layoutOfTwo() {
  ShmSegment::Layout layout;
  layout.members = 2;
  layout.slotBytes = 10000;
  return layout;
}

// The second member's attempt, by what the store says.
std::string attach(const std::string& answer, Millis patience = Millis(50)) {
  MemoryStore store;
  store.set("segment", answer);
  std::string whyNot;
  try {
    ShmSegment::meet("segment", store, layoutOfTwo(), {0, 1}, 1, Deadline::after(patience),
                     &whyNot);
  } catch (const Error& error) {
    return error.what();
  }
  return whyNot.empty() ? "attached" : "no error; not shared because: " + whyNot;
}

// The first member waits for the second; the answer that it has put into the store goes to `body`.
// Had anybody come in meanwhile, the true second member would find no segment any more.
void withSegment(const std::function<void(const std::string& answer)>& body) {
  MemoryStore store;
  std::string ended = "attached";
  std::thread first([&] {
    std::string whyNot;
    try {
      ShmSegment::meet("segment", store, layoutOfTwo(), {0, 1}, 0, Deadline::after(Millis(60000)),
                       &whyNot);
    } catch (const Error& error) {
      ended = error.what();
    }
  });
  const std::string answer = store.get("segment", Deadline::after(Millis(60000)));
  body(answer);
  CHECK(attach(answer, Millis(60000)) == "attached");
  CHECK(::access(answer.substr(answer.rfind(' ') + 1).c_str(), F_OK) != 0);
  first.join();
  CHECK(ended == "attached");
}

// Runs `body` as another user; true if it returned true. The child does nothing that the parent
// would feel: it ends by _exit.
bool asNobody(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const bool other = ::setgid(kNobody) == 0 && ::setuid(kNobody) == 0;
    ::_exit(other && body() ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status == 0;
}

bool canBecomeNobody() {
  if (::geteuid() == 0) return true;
  WARN("skipped: only root can become another user");
  return false;
}

struct Removed {
  explicit Removed(std::string thePath) : path(std::move(thePath)) {}
  ~Removed() { ::unlink(path.c_str()); }
  const std::string path;
};

std::string freshName(const char* prefix) { return str("/dev/shm/", prefix, randomHex(16)); }

TEST_CASE("segments: the file is closed to others, and gone when all have attached") {
  withSegment([](const std::string& answer) {
    REQUIRE(answer.rfind("at ", 0) == 0);
    const std::string path = answer.substr(answer.rfind(' ') + 1);
    struct stat facts {};
    REQUIRE(::stat(path.c_str(), &facts) == 0);
    CHECK((facts.st_mode & 07777) == 0600);
    CHECK(facts.st_uid == ::geteuid());
    CHECK(static_cast<size_t>(facts.st_size) == layoutOfTwo().totalBytes());
    // The token is asked for as well.
    std::string other = answer;
    other[5] = other[5] == '0' ? '1' : '0';
    CHECK(attach(other).find("is not the shared segment that rank 0 has made") !=
          std::string::npos);
  });
}

TEST_CASE("segments: another user can neither read nor join") {
  if (!canBecomeNobody()) return;
  withSegment([](const std::string& answer) {
    const std::string path = answer.substr(answer.rfind(' ') + 1);
    CHECK(asNobody([&] {
      return ::open(path.c_str(), O_RDONLY) < 0 && errno == EACCES &&
             ::open(path.c_str(), O_RDWR) < 0 && errno == EACCES &&
             attach(answer).find("cannot open") != std::string::npos;
    }));
  });
  const NodeProof proof;
  CHECK(NodeProof::holds(proof.path(), proof.token()));
  CHECK(asNobody([&] { return !NodeProof::holds(proof.path(), proof.token()); }));
}

TEST_CASE("segments: what another user has laid there is not taken, and not removed") {
  if (!canBecomeNobody()) return;
  const Removed segment(freshName("taco-"));
  const Removed proof(freshName("taco-proof-"));
  const Removed pipe(freshName("taco-proof-"));
  const std::string token(32, 'a');
  CHECK(asNobody([&] {
    const int fd = ::open(segment.path.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    const int other = ::open(proof.path.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    const timespec longAgo[2] = {{1000, 0}, {1000, 0}};
    return fd >= 0 && other >= 0 && ::ftruncate(fd, 1 << 20) == 0 &&
           ::write(other, token.data(), token.size()) == static_cast<ssize_t>(token.size()) &&
           ::futimens(other, longAgo) == 0 && ::mkfifo(pipe.path.c_str(), 0600) == 0;
  }));
  CHECK(attach(str("at ", token, " ", segment.path)).find("belongs to another user") !=
        std::string::npos);
  CHECK_FALSE(NodeProof::holds(proof.path, token));
  CHECK_FALSE(NodeProof::holds(pipe.path, token));  // and does not wait for a writer
  const NodeProof tidiesUp;
  CHECK(::access(proof.path.c_str(), F_OK) == 0);
  CHECK(::access(pipe.path.c_str(), F_OK) == 0);
}

TEST_CASE("segments: a file that is too small, open to others, or no file at all") {
  const std::string token(32, 'a');
  const Removed small(freshName("taco-"));
  const Removed open(freshName("taco-"));
  const Removed link(freshName("taco-"));
  // Locked, or another test that makes a group would tidy them up.
  const int smallFd = ::open(small.path.c_str(), O_RDWR | O_CREAT, 0600);
  const int fd = ::open(open.path.c_str(), O_RDWR | O_CREAT, 0600);
  REQUIRE(::flock(smallFd, LOCK_EX) == 0);
  REQUIRE(::flock(fd, LOCK_EX) == 0);
  REQUIRE(::ftruncate(fd, static_cast<off_t>(layoutOfTwo().totalBytes())) == 0);
  REQUIRE(::symlink(open.path.c_str(), link.path.c_str()) == 0);
  // Of the right kind and size, but not the one that was announced.
  CHECK(attach(str("at ", token, " ", open.path)).find("is not the shared segment") !=
        std::string::npos);
  REQUIRE(::fchmod(fd, 0644) == 0);
  CHECK(attach(str("at ", token, " ", open.path)).find("is open to other users") !=
        std::string::npos);
  CHECK(attach(str("at ", token, " ", small.path)).find("is too small") != std::string::npos);
  CHECK(attach(str("at ", token, " ", link.path)).find("cannot open") != std::string::npos);
  CHECK(attach(str("at ", token, " /etc/passwd")).find("is not the name of a file of TACO's") !=
        std::string::npos);
  CHECK(attach("x").find("makes no sense") != std::string::npos);
  CHECK(attach("").find("makes no sense") != std::string::npos);
  CHECK(attach("no room").find("not shared because: room") != std::string::npos);
  ::close(fd);
  ::close(smallFd);
}

TEST_CASE("fuzz: what the store says of a segment") {
  withSegment([](const std::string& answer) {
    Fuzz fuzz("announced segments", 3000);
    int refused = 0;
    for (int i = 0; i < fuzz.cases(); ++i) {
      const std::string other = fuzz.mutated(answer);
      if (other == answer) continue;
      const std::string outcome = attach(other);
      if (outcome == "attached" || outcome.find("Timed out") != std::string::npos) {
        FAIL("seed " << fuzz.seed() << ", case " << i << ": came in by " << other);
      }
      refused += outcome.rfind("no error", 0) == 0 ? 0 : 1;
    }
    CHECK(refused > fuzz.cases() / 2);
  });
}

}  // namespace
}  // namespace taco
