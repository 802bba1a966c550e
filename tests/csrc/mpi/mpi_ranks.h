#pragma once

// Transports over a fake MPI, for ranks that are threads of this process.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/mpi/mpi_transport.h"
#include "tests/csrc/catch.h"
#include "tests/csrc/mpi/fake_mpi.h"
#include "tests/csrc/ranks.h"

namespace taco::testing {

constexpr auto kNoWait = std::chrono::nanoseconds(0);

inline MpiConfig configOf(int rank, int size, const std::string& channel = "test/0") {
  MpiConfig config;
  config.rank = rank;
  config.size = size;
  config.channel = channel;
  config.secret = "a secret";
  for (int peer = 0; peer < size; ++peer) {
    MpiAddress address;
    address.job = "job";
    address.worldRank = peer;
    config.addresses.push_back(address);
  }
  return config;
}

// Processes with a port each.
struct Processes {
  explicit Processes(int size) : world(size) {
    for (int rank = 0; rank < size; ++rank) {
      apis.push_back(world.api(rank));
      ports.push_back(std::make_unique<MpiPort>(*apis.back()));
    }
  }
  ~Processes() {
    for (auto& port : ports) port->stop();
  }
  std::unique_ptr<MpiTransport> transport(int rank, const std::string& channel = "test/0") {
    return std::make_unique<MpiTransport>(configOf(rank, static_cast<int>(ports.size()), channel),
                                          *ports[static_cast<size_t>(rank)]);
  }

  FakeMpiWorld world;
  std::vector<std::unique_ptr<MpiApi>> apis;
  std::vector<std::unique_ptr<MpiPort>> ports;
};

// Takes every frame it is offered unless told not to.
struct Taker : Transport::Receiver {
  bool willing = true;
  std::vector<char> memory = std::vector<char>(8 << 20);
  std::vector<FrameHeader> arrived;
  std::map<int, std::pair<std::string, Loss>> lost;

  Landing onHeader(int, const FrameHeader&) override { return {willing, memory.data()}; }
  void onArrived(int, const FrameHeader& header) override { arrived.push_back(header); }
  void onLost(int peer, const Error& why, Loss how) override { lost[peer] = {why.what(), how}; }
};

struct Pair {
  Pair() : processes(2), a(processes.transport(0)), b(processes.transport(1)) {
    a->setReceiver(&atA);
    b->setReceiver(&atB);
  }
  // Progresses both sides until `done`, which must come.
  void until(const std::function<bool()>& done) {
    const Deadline deadline = Deadline::after(Millis(20000));
    while (!done()) {
      REQUIRE_FALSE(deadline.expired());
      if (a) a->progress(kNoWait);
      if (b) b->progress(kNoWait);
    }
  }

  Processes processes;
  Taker atA, atB;
  std::unique_ptr<MpiTransport> a, b;
};

inline FrameHeader frame(uint64_t bytes, uint32_t step = 0) {
  FrameHeader header;
  header.kind = FrameKind::kEager;
  header.step = step;
  header.bytes = bytes;
  return header;
}

inline std::vector<char> pattern(size_t bytes, unsigned seed) {
  std::vector<char> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>((i * 31 + i / 251 + seed) & 0xff);
  return data;
}

inline Call callOf(uint64_t sequence) {
  Call call;
  call.op = OpKind::kAllToAll;
  call.dtype = DType::kInt8;
  call.sequence = sequence;
  return call;
}

}  // namespace taco::testing
