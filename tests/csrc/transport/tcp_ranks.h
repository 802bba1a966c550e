#pragma once

// Ranks for tests of transports: as threads of this process, and as forked processes that may be
// killed.

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "csrc/transport/tcp_transport.h"
#include "tests/csrc/catch.h"

namespace taco::testing {

inline TcpSecret testSecret() {
  TcpSecret secret;
  for (size_t i = 0; i < secret.size(); ++i) secret[i] = static_cast<uint8_t>(17 * i + 5);
  return secret;
}

inline TcpConfig tcpConfig(int rank, const std::vector<std::string>& addresses) {
  TcpConfig config;
  config.rank = rank;
  config.size = static_cast<int>(addresses.size());
  config.channel = "test/ordered";
  config.secret = testSecret();
  config.addresses = addresses;
  return config;
}

inline std::unique_ptr<TcpListener> loopbackListener() {
  return std::make_unique<TcpListener>("", "127.0.0.1");
}

// `size` transports that can reach each other, by rank.
inline std::vector<std::unique_ptr<TcpTransport>> makeTransports(
    int size, const std::function<void(TcpConfig&)>& adapt = [](TcpConfig&) {}) {
  std::vector<std::unique_ptr<TcpListener>> listeners;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < size; ++rank) {
    listeners.push_back(loopbackListener());
    addresses.push_back(listeners.back()->address());
  }
  std::vector<std::unique_ptr<TcpTransport>> transports;
  for (int rank = 0; rank < size; ++rank) {
    TcpConfig config = tcpConfig(rank, addresses);
    adapt(config);
    transports.push_back(
        std::make_unique<TcpTransport>(std::move(config), std::move(listeners[rank])));
  }
  return transports;
}

// Runs body(rank) on a thread each and rethrows the first error.
inline void runThreads(int size, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(size);
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

// Memory that the forked ranks share.
struct Meeting {
  static constexpr int kMost = 8;
  std::atomic<int> arrived[16];  // barriers, each used once
  char addresses[kMost][128];
  char outcome[kMost][1024];  // what the body returned, or the error it threw
  std::atomic<int> flag;      // free for the test

  void barrier(int which, int size) {
    arrived[which].fetch_add(1);
    while (arrived[which].load() < size) std::this_thread::sleep_for(Millis(1));
  }
};

// Forks `size` ranks; each makes its transport and runs the body, whose text becomes its outcome.
class ForkedRanks {
 public:
  using Body = std::function<std::string(int rank, std::unique_ptr<TcpTransport>, Meeting&)>;

  ForkedRanks(int size, const Body& body) : size_(size) {
    void* memory =
        ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    meeting_ = new (memory) Meeting();
    for (int rank = 0; rank < size; ++rank) {
      const pid_t pid = ::fork();
      REQUIRE(pid >= 0);
      if (pid == 0) {
        ::alarm(60);
        run(rank, body);
        ::_exit(0);
      }
      pids_.push_back(pid);
    }
  }

  ~ForkedRanks() {
    for (int rank = 0; rank < size_; ++rank) {
      if (pids_[rank] > 0) kill(rank, SIGKILL);
      wait(rank);
    }
    ::munmap(meeting_, sizeof(Meeting));
  }

  Meeting& meeting() { return *meeting_; }
  void kill(int rank, int signal) { ::kill(pids_[rank], signal); }

  // The wait status.
  int wait(int rank) {
    int status = -1;
    if (pids_[rank] > 0) ::waitpid(pids_[rank], &status, 0);
    pids_[rank] = -1;
    return status;
  }

  std::string outcome(int rank) {
    const int status = wait(rank);
    if (WIFSIGNALED(status)) return "killed by signal " + std::to_string(WTERMSIG(status));
    return meeting_->outcome[rank];
  }

 private:
  void run(int rank, const Body& body) {
    std::string text;
    try {
      auto listener = loopbackListener();
      std::strncpy(meeting_->addresses[rank], listener->address().c_str(), 127);
      meeting_->barrier(0, size_);
      std::vector<std::string> addresses;
      for (int peer = 0; peer < size_; ++peer) addresses.push_back(meeting_->addresses[peer]);
      text = body(rank,
                  std::make_unique<TcpTransport>(tcpConfig(rank, addresses), std::move(listener)),
                  *meeting_);
    } catch (const std::exception& error) {
      text = std::string("error: ") + error.what();
    }
    std::strncpy(meeting_->outcome[rank], text.c_str(), sizeof meeting_->outcome[rank] - 1);
  }

  const int size_;
  Meeting* meeting_;
  std::vector<pid_t> pids_;
};

inline std::vector<uint8_t> pattern(size_t bytes, uint64_t seed) {
  std::vector<uint8_t> data(bytes);
  uint64_t x = seed * 0x9e3779b97f4a7c15ull + 1;
  for (size_t i = 0; i < bytes; ++i) {
    if (i % 8 == 0) x = x * 6364136223846793005ull + 1442695040888963407ull;
    data[i] = static_cast<uint8_t>(x >> (8 * (i % 8)));
  }
  return data;
}

}  // namespace taco::testing
