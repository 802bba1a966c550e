#pragma once

// Where the processes of a test meet: a file for each key, in a folder that all of them see.

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "csrc/base/error.h"
#include "csrc/base/format.h"
#include "csrc/topology/key_value_store.h"

namespace taco {

class FolderStore : public KeyValueStore {
 public:
  explicit FolderStore(std::string folder) : folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_);
  }

  void set(const std::string& key, const std::string& value) override {
    const std::string path = file(key);
    const std::string fresh = str(path, ".", ::getpid(), ".", ++writes_);
    std::ofstream(fresh, std::ios::binary) << value;
    std::filesystem::rename(fresh, path);
  }

  std::optional<std::string> peek(const std::string& key) override {
    std::ifstream in(file(key), std::ios::binary);
    if (!in) return std::nullopt;
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }

  std::string get(const std::string& key, const Deadline& deadline) override {
    for (;;) {
      if (auto value = peek(key)) return *value;
      if (deadline.expired()) throw Error(ErrorCode::kTimeout, "nobody has set " + key);
      std::this_thread::sleep_for(Millis(1));
    }
  }

  int64_t add(const std::string& key, int64_t amount) override {
    const int lock = ::open((folder_ + "/lock").c_str(), O_CREAT | O_RDWR, 0600);
    ::flock(lock, LOCK_EX);
    const int64_t value = std::atoll(peek(key).value_or("0").c_str()) + amount;
    set(key, str(value));
    ::close(lock);
    return value;
  }

 private:
  std::string file(const std::string& key) const {
    std::string name = key;
    std::replace(name.begin(), name.end(), '/', '~');
    return folder_ + "/" + name;
  }
  const std::string folder_;
  std::atomic<int> writes_{0};
};

}  // namespace taco
