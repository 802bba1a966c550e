#include "csrc/transport/file_descriptor.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace taco {
namespace {

struct Registry {
  std::mutex mutex;  // guards `open`; held across fork(), so that the child finds a whole list
  std::vector<int> open;
};

// Never destroyed: threads may still close descriptors while static objects are going.
Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

void beforeFork() { registry().mutex.lock(); }

void afterForkInParent() { registry().mutex.unlock(); }

void afterForkInChild() {
  for (const int fd : registry().open) ::close(fd);
  registry().open.clear();
  registry().mutex.unlock();
}

void add(int fd) {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(beforeFork, afterForkInParent, afterForkInChild); });
  std::lock_guard<std::mutex> lock(registry().mutex);
  registry().open.push_back(fd);
}

void closeAndRemove(int fd) {
  std::lock_guard<std::mutex> lock(registry().mutex);
  auto& open = registry().open;
  const auto at = std::find(open.begin(), open.end(), fd);
  if (at != open.end()) {
    *at = open.back();
    open.pop_back();
  }
  ::close(fd);  // under the lock: a fork in between must not meet a number that is somebody else's
}

}  // namespace

FileDescriptor::FileDescriptor(int fd) : fd_(fd), creator_(::getpid()) {
  if (fd >= 0) add(fd);
}

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), creator_(other.creator_) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this == &other) return *this;
  close();
  fd_ = std::exchange(other.fd_, -1);
  creator_ = other.creator_;
  return *this;
}

void FileDescriptor::close() {
  const int fd = std::exchange(fd_, -1);
  if (fd >= 0 && creator_ == ::getpid()) closeAndRemove(fd);
}

}  // namespace taco
