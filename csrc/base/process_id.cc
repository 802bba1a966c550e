#include "csrc/base/process_id.h"

#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

#include "csrc/base/error.h"

namespace taco {

std::string randomBytes(int bytes) {
  std::string raw(static_cast<size_t>(bytes), '\0');
  size_t have = 0;
  while (have < raw.size()) {
    const ssize_t got = ::getrandom(raw.data() + have, raw.size() - have, 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      throw systemError("getrandom failed", errno);
    }
    have += static_cast<size_t>(got);
  }
  return raw;
}

std::string randomHex(int bytes) {
  static const char digits[] = "0123456789abcdef";
  std::string hex;
  for (const char byte : randomBytes(bytes)) {
    hex += digits[static_cast<unsigned char>(byte) >> 4];
    hex += digits[byte & 15];
  }
  return hex;
}

std::string processId() {
  static std::mutex mutex;  // guards both below
  static pid_t ofPid = 0;
  static std::string id;
  std::lock_guard<std::mutex> lock(mutex);
  if (ofPid != ::getpid()) {
    id = randomHex(16);
    ofPid = ::getpid();
  }
  return id;
}

}  // namespace taco
