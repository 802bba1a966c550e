#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/deadline.h"
#include "csrc/transport/file_descriptor.h"
#include "csrc/transport/tcp_incoming.h"
#include "csrc/transport/tcp_listener.h"
#include "csrc/transport/tcp_outgoing.h"
#include "csrc/transport/tcp_wire.h"
#include "csrc/transport/transport.h"

namespace taco {

struct TcpConfig {
  int rank = 0;
  int size = 1;
  std::string channel;  // group and lane, the same on all ranks, unlike any other of the job
  TcpSecret secret{};   // random, the same on all ranks
  std::vector<std::string> addresses;  // TcpListener::address() of every rank
  Millis helloTimeout{30000};  // a connection that does not say who it is within this is closed
};

// Plain TCP under one epoll.
//
// To send, a rank connects to its peer, says hello and streams frames; the other side accepts when
// it next makes progress. So a sender needs no answer before it sends, two ranks that connect to
// each other at once have two streams rather than a tie to break, and what was sent to a rank that
// is busy elsewhere waits in its kernel, even if the sender has left meanwhile.
//
// The death of a peer shows on the stream to it or on the stream from it, whichever there is. A
// stream that ends without a word puts the peer under suspicion: the other one may hold the reason,
// or data sent before, so it gets a short grace before the peer counts as lost.
class TcpTransport : public Transport {
 public:
  TcpTransport(TcpConfig config, std::unique_ptr<TcpListener> listener);
  ~TcpTransport() override;  // closes without a goodbye, unless close() was called

  const char* kind() const override { return "tcp"; }
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

  uint64_t bytesSent() const override { return counters_.sent; }
  uint64_t bytesReceived() const override { return counters_.received; }

 private:
  struct Peer {
    Peer(int peer, int self, TcpCounters& counters)
        : out(peer, self, counters), in(peer, self, counters) {}
    TcpOutgoing out;
    TcpIncoming in;
    bool lost = false;  // onLost was called
    std::optional<Clock::time_point> suspectedAt;
  };

  // A connection that was accepted and has not said its whole hello.
  struct Visitor {
    FileDescriptor socket;
    Clock::time_point since;
    size_t got = 0;
    TcpHello hello;
  };

  static constexpr Millis kAnswersInterval{2000};  // between looks at silent connections

  // What an epoll event is about; a rank or a visitor's number goes with it.
  enum class About : uint64_t { kWakeUp, kListener, kVisitor, kOutgoing, kIncoming };
  static uint64_t label(About about, uint64_t which = 0) {
    return static_cast<uint64_t>(about) << 56 | which;
  }

  bool isOurs() const;  // not in a forked child, not closed
  TcpHello ownHello() const;
  void startConnecting(int peer);
  void beginStream(int peer);
  void observe(int fd, uint64_t what);
  void markUnsettled(int peer);

  bool pollEvents(int timeoutMillis);
  bool readStreams();
  bool acceptVisitors();
  bool hearVisitor(uint64_t id);
  void dropVisitor(uint64_t id, const std::string& why);
  void tendVisitors();
  bool settlePeers();
  bool settle(int peer);
  void lose(int peer, const Error& why, Receiver::Loss how);
  void checkAnswers();
  int timeoutMillis(std::chrono::nanoseconds maxWait) const;
  void closeEverything();

  const TcpConfig config_;
  const int creator_;  // process id
  TcpCounters counters_;
  std::vector<TcpAddress> addresses_;
  std::string networkId_;
  Receiver* receiver_ = nullptr;
  bool closed_ = false;

  FileDescriptor epoll_;
  FileDescriptor wakeUp_;
  std::unique_ptr<TcpListener> listener_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; none for this one
  std::map<uint64_t, Visitor> visitors_;
  uint64_t nextVisitor_ = 0;
  int visitorsDropped_ = 0;
  std::optional<Clock::time_point> acceptAgainAt_;  // after the process ran out of descriptors

  std::vector<int> unsettled_;  // peers whose streams may have ended since
  std::vector<int> readable_;   // peers whose stream may hold more to read now
  Clock::time_point answersCheckedAt_;
};

}  // namespace taco
