#pragma once

// Ranks as forked processes, which may be killed, and a store for them to meet in.

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/error.h"
#include "csrc/base/format.h"
#include "csrc/base/process_id.h"
#include "csrc/topology/key_value_store.h"
#include "tests/csrc/catch.h"

namespace taco::testing {

// One file a key, in a folder of its own that goes when the maker's object does.
class FileStore : public KeyValueStore {
 public:
  FileStore() : folder_(str("/tmp/taco-test-", randomHex(8))), maker_(::getpid()) {
    std::filesystem::create_directory(folder_);
  }
  ~FileStore() override {
    std::error_code ignored;
    if (::getpid() == maker_) std::filesystem::remove_all(folder_, ignored);
  }

  void set(const std::string& key, const std::string& value) override {
    const std::string temporary = str(folder_, "/", randomHex(8));
    std::ofstream(temporary, std::ios::binary) << value;
    std::filesystem::rename(temporary, pathOf(key));
  }
  std::string get(const std::string& key, const Deadline& deadline) override {
    for (;;) {
      std::ifstream file(pathOf(key), std::ios::binary);
      if (file) {
        std::ostringstream text;
        text << file.rdbuf();
        return text.str();
      }
      if (deadline.expired()) throw Error(ErrorCode::kTimeout, "nobody set " + key);
      std::this_thread::sleep_for(Millis(1));
    }
  }
  std::optional<std::string> peek(const std::string& key) override {
    if (!std::filesystem::exists(pathOf(key))) return std::nullopt;
    return get(key, Deadline::never());
  }
  int64_t add(const std::string&, int64_t) override {
    throw Error(ErrorCode::kUnsupported, "the test's store has no counters");
  }

 private:
  std::string pathOf(std::string key) const {
    for (char& letter : key) {
      if (letter == '/') letter = '_';
    }
    return folder_ + "/key-" + key;
  }

  std::string folder_;
  pid_t maker_;
};

// Forks `size` ranks. What body returns, or the text of the error it throws, becomes the rank's
// outcome.
class ForkedRanks {
 public:
  struct Shared {
    static constexpr int kMostRanks = 8;
    std::atomic<uint64_t> progress[kMostRanks];  // free for the body
    std::atomic<int> word;                       // free for the test
    char outcome[kMostRanks][2048];
    double seconds[kMostRanks];  // free for the body
  };
  using Body = std::function<std::string(int rank, Shared& shared)>;

  ForkedRanks(int size, const Body& body) : pids_(static_cast<size_t>(size), -1) {
    void* memory =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    shared_ = new (memory) Shared();
    for (int rank = 0; rank < size; ++rank) {
      const pid_t pid = ::fork();
      REQUIRE(pid >= 0);
      if (pid == 0) {
        ::alarm(80);  // nobody hangs
        std::string text;
        try {
          text = body(rank, *shared_);
        } catch (const std::exception& error) {
          text = str("error: ", error.what());
        }
        std::strncpy(shared_->outcome[rank], text.c_str(), sizeof(shared_->outcome[rank]) - 1);
        ::_exit(0);
      }
      pids_[static_cast<size_t>(rank)] = pid;
    }
  }

  ~ForkedRanks() {
    for (size_t rank = 0; rank < pids_.size(); ++rank) {
      kill(static_cast<int>(rank));
      wait(static_cast<int>(rank));
    }
    ::munmap(shared_, sizeof(Shared));
  }

  Shared& shared() { return *shared_; }
  void kill(int rank) { signal(rank, SIGKILL); }
  void signal(int rank, int number) {
    if (pids_[static_cast<size_t>(rank)] > 0) ::kill(pids_[static_cast<size_t>(rank)], number);
  }
  std::string outcome(int rank) {
    const int status = wait(rank);
    if (WIFSIGNALED(status)) return str("killed by signal ", WTERMSIG(status));
    return shared_->outcome[rank];
  }

 private:
  int wait(int rank) {
    int status = 0;
    pid_t& pid = pids_[static_cast<size_t>(rank)];
    if (pid > 0) ::waitpid(pid, &status, 0);
    pid = -1;
    return status;
  }

  Shared* shared_;
  std::vector<pid_t> pids_;
};

// Waits until ready(), which some other process brings about; false after a minute.
inline bool eventually(const std::function<bool()>& ready, Millis patience = Millis(60000)) {
  const Deadline deadline = Deadline::after(patience);
  while (!ready()) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

// Names in /dev/shm that are TACO's.
inline std::set<std::string> shmNames() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string file = entry.path().filename();
    if (file.rfind("taco-", 0) == 0) names.insert(file);
  }
  return names;
}

// Those that came since `before` and stay. What other programs make meanwhile goes again.
inline std::set<std::string> shmLeftovers(const std::set<std::string>& before) {
  std::set<std::string> left = shmNames();
  for (const std::string& name : before) left.erase(name);
  const Deadline deadline = Deadline::after(Millis(20000));
  while (!left.empty() && !deadline.expired()) {
    std::this_thread::sleep_for(Millis(5));
    const std::set<std::string> now = shmNames();
    std::erase_if(left, [&](const std::string& name) { return now.count(name) == 0; });
  }
  return left;
}

}  // namespace taco::testing
