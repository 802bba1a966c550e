#include "csrc/base/log.h"

#include <unistd.h>

#include <atomic>

namespace taco {
namespace {

std::atomic<int> levelNow{static_cast<int>(LogLevel::kWarn)};

}  // namespace

void setLogLevel(LogLevel level) { levelNow.store(static_cast<int>(level)); }

bool logs(LogLevel level) { return static_cast<int>(level) <= levelNow.load(); }

void log(LogLevel level, const std::string& text) {
  if (!logs(level)) return;
  // One write, so that lines of several ranks on one terminal do not mix.
  const std::string line = "[taco] " + text + "\n";
  const char* at = line.data();
  size_t left = line.size();
  while (left > 0) {
    const ssize_t wrote = ::write(STDERR_FILENO, at, left);
    if (wrote <= 0) return;  // stderr is gone: nobody can be told
    at += wrote;
    left -= static_cast<size_t>(wrote);
  }
}

}  // namespace taco
