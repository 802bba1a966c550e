#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/mpi/mpi_address.h"
#include "csrc/mpi/mpi_port.h"
#include "csrc/transport/transport.h"

namespace taco {

struct MpiConfig {
  int rank = 0;
  int size = 1;
  std::string channel;                // group and lane
  std::string secret;                 // random, the same on all ranks: makes the channel unique
  std::vector<MpiAddress> addresses;  // by rank
};

// Frames over MPI, copied through packets (mpi_packet.h) on either side.
//
// A sender may be kWindowBytes ahead of what its receiver has read: a receiver that does not want a
// frame yet keeps it waiting without holding up other peers or channels, and memory stays bounded.
// Ranks know of each other once one of them sent something or watched; who ends tells those.
// The death of a process shows where MPI reports it, where its pid can be seen from this one, and
// else by the deadline of whoever waits; mpirun by default ends the others itself.
class MpiTransport : public Transport {
 public:
  // Throws Error(kInvalidSettings) if the ranks are not one MPI job.
  MpiTransport(MpiConfig config, MpiPort& port);
  ~MpiTransport() override;

  const char* kind() const override { return "mpi"; }
  int rank() const override { return config_.rank; }
  int size() const override { return config_.size; }
  void setReceiver(Receiver* receiver) override { receiver_ = receiver; }

  void send(int peer, const FrameHeader& header, const void* payload,
            std::function<void()> onSent) override;
  void sendCopy(int peer, const FrameHeader& header, const void* payload) override;
  void watch(int peer) override;
  void resume(int peer) override;
  void discardPayload(int peer) override;
  void detachPayload(int peer, const void* data, size_t bytes) override;
  bool progress(std::chrono::nanoseconds maxWait) override;
  void waitReady(std::chrono::nanoseconds maxWait) override;
  void wake() override;
  void fail(const Error& why) override;
  void close(std::chrono::milliseconds maxWait) override;

  uint64_t bytesSent() const override { return sent_; }
  uint64_t bytesReceived() const override { return received_; }

 private:
  struct Frame {
    uint64_t number = 0;
    FrameHeader header;
    const char* payload = nullptr;  // from byte `payloadBegin` on
    uint64_t payloadBegin = 0;
    std::function<void()> onSent;
    std::unique_ptr<char[]> own;  // the copy, after a detach
    bool begun = false;           // its header is in a packet
    uint64_t taken = 0;           // bytes of the payload that are in packets
  };

  struct Peer {
    // towards it
    std::deque<Frame> queue;
    bool pumping = false;
    int64_t window = 0;  // bytes that may be sent; the last packet may overdraw it
    // from it
    std::deque<MpiPacket> packets;
    size_t offset = 0;  // into the first packet's body
    enum class State { kHeader, kOffered, kPayload } state = State::kHeader;
    FrameHeader header;
    char* landing = nullptr;  // where the next byte of the payload goes; null: nowhere
    uint64_t remaining = 0;   // of the payload
    bool paused = false;
    uint64_t owed = 0;  // bytes read and not yet credited
    // its life
    bool known = false;  // it hears of our end
    bool watched = false;
    bool lost = false;
    std::optional<Clock::time_point> deadSince;
    std::optional<Error> trouble;  // found where onLost may not be called
  };

  bool isOurs() const;  // not in a forked child, not closed
  Frame* find(Peer& peer, uint64_t number);
  static void detach(Frame& frame);

  MpiPacket newPacket(PacketKind kind, size_t bodyBytes);
  void post(int peer, MpiPacket packet);
  void tell(int peer, PacketKind kind, const std::string& body = "");
  void pump(int peer);
  void fill(MpiPacket& packet, Peer& peer, std::vector<std::function<void()>>& done);

  bool step();
  bool takeMail();
  bool read(int peer);
  bool advance(int peer);
  bool refuse(int peer);  // what came from it makes no sense
  void consumed(int peer);
  void credit(int peer);
  void lookForTheDead();
  void lose(int peer, const Error& why, Receiver::Loss how);
  void loseAll(const Error& why);
  void end(PacketKind kind, const std::string& body);

  const MpiConfig config_;
  const int creator_;  // process id
  const uint64_t channel_;
  const std::string machine_;
  MpiPort& port_;
  MpiMailbox mailbox_;
  Receiver* receiver_ = nullptr;
  bool closing_ = false;  // nobody wants to hear of losses any more
  bool closed_ = false;
  std::vector<Peer> peers_;    // by rank; this one's is unused
  std::vector<int> readable_;  // peers with packets to read
  std::vector<int> troubled_;  // peers with a trouble
  std::vector<int> watched_;   // peers whose life is looked at
  Clock::time_point looked_;
  uint64_t frames_ = 0;
  std::atomic<uint64_t> sent_{0};  // relaxed: statistics, read by other threads
  std::atomic<uint64_t> received_{0};
};

}  // namespace taco
