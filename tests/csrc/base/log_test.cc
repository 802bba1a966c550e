#include "csrc/base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "csrc/base/process_id.h"
#include "tests/csrc/ranks.h"

namespace taco {
namespace {

using namespace taco::testing;

// Everything that `body` writes to stderr.
std::string stderrOf(const std::function<void()>& body) {
  const std::string path = "/tmp/taco-test-log-" + randomHex(8);
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_APPEND, 0600);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(file, STDERR_FILENO);
  body();
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  ::close(file);
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  ::unlink(path.c_str());
  return text.str();
}

struct LevelGuard {
  ~LevelGuard() { setLogLevel(LogLevel::kWarn); }
};

TEST_CASE("only what is at or above the level is written, warnings at first") {
  const LevelGuard guard;
  CHECK(logs(LogLevel::kWarn));
  CHECK_FALSE(logs(LogLevel::kInfo));
  const LogLevel levels[] = {LogLevel::kError, LogLevel::kWarn, LogLevel::kInfo, LogLevel::kDebug};
  for (int level = 0; level < 4; ++level) {
    setLogLevel(levels[level]);
    const std::string text = stderrOf([&] {
      for (int i = 0; i < 4; ++i) log(levels[i], str("line ", i));
    });
    std::string expected;
    for (int i = 0; i <= level; ++i) expected += str("[taco] line ", i, "\n");
    CHECK(text == expected);
  }
}

TEST_CASE("lines of several threads do not mix") {
  const std::string text = stderrOf([] {
    runRanks(4, [](int rank) {
      for (int i = 0; i < 200; ++i) {
        log(LogLevel::kError, std::string(100, static_cast<char>('a' + rank)));
      }
    });
  });
  std::istringstream lines(text);
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    ++count;
    REQUIRE(line.size() == 107);
    REQUIRE(line.find_first_not_of(line[7], 7) == std::string::npos);
  }
  CHECK(count == 800);
}

TEST_CASE("a closed stderr is no error") {
  const int before = ::dup(STDERR_FILENO);
  ::close(STDERR_FILENO);
  log(LogLevel::kError, "nobody hears this");
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  CHECK(logs(LogLevel::kError));
}

}  // namespace
}  // namespace taco
