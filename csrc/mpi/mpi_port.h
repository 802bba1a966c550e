#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "csrc/base/deadline.h"
#include "csrc/base/error.h"
#include "csrc/mpi/mpi_api.h"
#include "csrc/mpi/mpi_packet.h"

namespace taco {

// Where a channel's packets wait for its transport. `news` is told about each.
struct MpiMailbox {
  std::mutex mutex;  // guards all below; taken after the port's
  std::condition_variable news;
  std::deque<MpiPacket> arrived;
  bool rung = false;            // somebody called wake(), or a paused peer was resumed
  std::optional<Error> broken;  // MPI itself refuses to go on
};

// A process's one door to MPI: all channels (groups and lanes) send and receive through it, under
// one lock, so that MPI needs no more than MPI_THREAD_SERIALIZED. It keeps a few receives posted
// from anybody, and sorts what comes by the channel in the packet's header.
//
// Whoever waits for something makes progress here. A thread does when nobody else has for a while:
// what the kernel does for TCP. Without it a message sent before a long computation would arrive
// after it, since MPI moves nothing while nobody calls it.
class MpiPort {
 public:
  // `api` has its communicator, and outlives the port.
  explicit MpiPort(MpiApi& api);
  ~MpiPort();  // stop()
  MpiPort(const MpiPort&) = delete;

  // From now on packets of `channel` go to `mailbox`, also those that came before.
  void open(uint64_t channel, MpiMailbox* mailbox);
  // No more. Who sends to it later is answered with `lastWord`, a packet without a body but for
  // kFail's.
  void close(uint64_t channel, const PacketHeader& lastWord, const std::string& body);

  MpiPacket newPacket(size_t bytes);
  void giveBack(MpiPacket packet);

  // Sends; `destination` is a rank in MPI_COMM_WORLD. Returns at once. Throws what MPI throws.
  void post(int destination, MpiPacket packet);

  // Moves what can be moved without waiting; true if anything was.
  bool progress();

  // Until everything that `channel` posted has left, or the deadline.
  void flush(uint64_t channel, const Deadline& deadline);

  // Ends the thread and takes the posted receives back. Nothing moves afterwards.
  void stop();

  // Runs `body` while no other thread is in MPI.
  template <typename Body>
  auto exclusively(const Body& body) {
    std::lock_guard<std::mutex> lock(mutex_);
    return body();
  }

 private:
  struct Sending {
    MpiRequest request;
    MpiPacket packet;
    uint64_t channel;
  };
  struct Receiving {
    MpiRequest request;
    MpiPacket packet;
  };
  struct Closed {
    PacketHeader lastWord;
    std::string body;
    std::set<int> told;  // ranks in MPI_COMM_WORLD
  };

  bool progressLocked();
  void postLocked(int destination, MpiPacket packet);
  void postReceive();
  void deliver(MpiPacket packet);
  void answer(int destination, Closed& closed);
  void breakDown(const Error& why);
  void startThread();
  void run();

  MpiApi& api_;
  std::mutex mutex_;  // guards all below but the atomics, and every call of api_
  PacketPool pool_;
  std::list<Sending> sending_;
  std::deque<Receiving> receiving_;  // in the order in which MPI fills them
  std::map<uint64_t, MpiMailbox*> open_;
  std::map<uint64_t, std::deque<MpiPacket>> early_;  // of channels not opened yet
  std::map<uint64_t, Closed> closed_;
  std::optional<Error> broken_;
  bool stopping_ = false;
  std::condition_variable stop_;
  std::thread thread_;
  std::atomic<uint64_t> rounds_{0};  // relaxed: calls of progress(), to see whether anybody does
  std::atomic<bool> busy_{false};    // relaxed: packets are on their way
};

}  // namespace taco
