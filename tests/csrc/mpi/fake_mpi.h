#pragma once

// MPI between threads of this process, for tests: what the real one promises and no more. Messages
// between two ranks arrive in order; one above the eager limit leaves its sender only when a
// receive has been posted for it.

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "csrc/base/error.h"
#include "csrc/mpi/mpi_api.h"

namespace taco::testing {

class FakeMpiWorld {
 public:
  static constexpr size_t kEagerBytes = 4096;

  explicit FakeMpiWorld(int size) : ranks_(static_cast<size_t>(size)) {}

  // From now on MPI reports that nothing can be sent to `rank`.
  void cut(int rank) {
    std::lock_guard<std::mutex> lock(mutex_);
    cut_.insert(rank);
  }
  // From now on everything that `rank` asks of MPI fails.
  void breakRank(int rank) {
    std::lock_guard<std::mutex> lock(mutex_);
    broken_.insert(rank);
  }

  std::unique_ptr<MpiApi> api(int rank);

 private:
  friend class FakeMpi;

  struct Message {
    int source;
    std::vector<char> data;
    bool matched = false;
  };
  struct Receive {
    void* memory;
    size_t bytes;
    bool done = false;
    int source = -1;
    size_t got = 0;
  };
  struct Rank {
    std::deque<std::shared_ptr<Message>> arrived;
    std::deque<std::shared_ptr<Receive>> posted;
  };

  void match(Rank& rank) {
    while (!rank.arrived.empty() && !rank.posted.empty()) {
      const auto message = rank.arrived.front();
      const auto receive = rank.posted.front();
      rank.arrived.pop_front();
      rank.posted.pop_front();
      std::memcpy(receive->memory, message->data.data(), message->data.size());
      receive->done = true;
      receive->source = message->source;
      receive->got = message->data.size();
      message->matched = true;
    }
  }

  std::mutex mutex_;  // guards all below
  std::vector<Rank> ranks_;
  std::set<int> cut_;
  std::set<int> broken_;
};

class FakeMpi : public MpiApi {
 public:
  FakeMpi(FakeMpiWorld& world, int rank) : world_(world), rank_(rank) {}

  std::string version() const override { return "Fake MPI"; }
  bool isInitialized() override { return true; }
  bool isFinalized() override { return false; }
  MpiThreads init() override { return MpiThreads::kSerialized; }
  MpiThreads threads() override { return MpiThreads::kSerialized; }
  void finalize() override {}
  void beforeFinalize(std::function<void()>) override {}
  int rank() override { return rank_; }
  int size() override { return static_cast<int>(world_.ranks_.size()); }
  MpiRequest duplicateWorld() override { return {}; }
  MpiRequest allGather(const void*, void*, size_t) override { return {}; }
  MpiRequest broadcast(void*, size_t, int) override { return {}; }

  MpiRequest send(const void* data, size_t bytes, int destination) override {
    std::lock_guard<std::mutex> lock(world_.mutex_);
    if (world_.cut_.count(destination) > 0) {
      throw Error(ErrorCode::kSystem, "MPI_Isend failed: no route");
    }
    auto message = std::make_shared<FakeMpiWorld::Message>();
    message->source = rank_;
    message->data.assign(static_cast<const char*>(data), static_cast<const char*>(data) + bytes);
    auto& there = world_.ranks_.at(static_cast<size_t>(destination));
    there.arrived.push_back(message);
    world_.match(there);
    sends_[++last_] = message;
    return {last_, true};
  }

  MpiRequest receive(void* data, size_t bytes) override {
    std::lock_guard<std::mutex> lock(world_.mutex_);
    auto receive = std::make_shared<FakeMpiWorld::Receive>();
    receive->memory = data;
    receive->bytes = bytes;
    auto& here = world_.ranks_[static_cast<size_t>(rank_)];
    here.posted.push_back(receive);
    world_.match(here);
    receives_[++last_] = receive;
    return {last_, true};
  }

  MpiArrival test(MpiRequest& request) override {
    if (!request.pending) return {true, -1, 0};
    std::lock_guard<std::mutex> lock(world_.mutex_);
    if (world_.broken_.count(rank_) > 0) {
      throw Error(ErrorCode::kSystem, "an operation of MPI failed: the network is gone");
    }
    if (const auto send = sends_.find(request.bits); send != sends_.end()) {
      const FakeMpiWorld::Message& message = *send->second;
      if (!message.matched && message.data.size() > FakeMpiWorld::kEagerBytes) return {};
      sends_.erase(send);
      request.pending = false;
      return {true, -1, 0};
    }
    const auto receive = receives_.at(request.bits);
    if (!receive->done) return {};
    receives_.erase(request.bits);
    request.pending = false;
    return {true, receive->source, receive->got};
  }

  void cancelReceive(MpiRequest& request) override {
    std::lock_guard<std::mutex> lock(world_.mutex_);
    auto& posted = world_.ranks_[static_cast<size_t>(rank_)].posted;
    const auto receive = receives_.at(request.bits);
    for (auto it = posted.begin(); it != posted.end(); ++it) {
      if (*it == receive) {
        posted.erase(it);
        break;
      }
    }
    receives_.erase(request.bits);
    request.pending = false;
  }

 private:
  FakeMpiWorld& world_;
  const int rank_;
  uint64_t last_ = 0;
  std::map<uint64_t, std::shared_ptr<FakeMpiWorld::Message>> sends_;
  std::map<uint64_t, std::shared_ptr<FakeMpiWorld::Receive>> receives_;
};

inline std::unique_ptr<MpiApi> FakeMpiWorld::api(int rank) {
  return std::make_unique<FakeMpi>(*this, rank);
}

}  // namespace taco::testing
