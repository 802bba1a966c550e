#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "csrc/transport/file_descriptor.h"
#include "csrc/transport/tcp_address.h"
#include "csrc/transport/tcp_wire.h"

namespace taco {

// The stream from this rank to one peer: connects without waiting, queues frames and writes as many
// of them as the kernel takes with one sendmsg. Read, it brings the peer's control message and the
// news of its death.
class TcpOutgoing {
 public:
  TcpOutgoing(int peer, int self, TcpCounters& counters)
      : peer_(peer), self_(self), counters_(counters) {}

  // Begins to connect. What goes wrong, now or later, becomes the end of the stream.
  void connect(const std::string& host, uint16_t port, const TcpHello& hello);

  // The peer has shut its door on us because we connected and then made no progress for so long
  // that it never heard our hello: nothing is lost, and the socket is to be connected anew.
  bool wasShutOut() const { return shutOut_; }
  void connectAgain();

  bool isUsed() const { return state_ != State::kIdle; }  // connect() was called
  bool isLive() const { return isUsed() && end_ == StreamEnd::kNone; }
  int fd() const { return socket_.get(); }

  void enqueue(const FrameHeader& header, const void* payload, std::function<void()> onSent);
  uint64_t framesQueued() const { return framesQueued_; }  // ever

  // Writes what the kernel takes now; runs onSent of what is gone, which may enqueue more. Returns
  // true if anything moved.
  bool flush();
  bool hasUnsent() const { return isLive() && (helloSent_ < sizeof hello_ || !queue_.empty()); }
  // Frames that will never be written, because the stream has ended.
  bool hasDropped() const { return end_ != StreamEnd::kNone && !queue_.empty(); }
  // Frames whose payload lies in the range go on from a copy.
  void detachPayload(const void* data, size_t bytes);
  void detachLast();  // the frame that was enqueued last, if it is still here

  // What epoll said.
  bool handleEvents(uint32_t events);

  // What the stream's reader has said against the stream, and how it ended.
  StreamEnd end() const { return end_; }
  const Error& endReason() const { return *why_; }  // unless kNone or kGoodbye
  uint64_t framesBehindGoodbye() const { return framesBehindGoodbye_; }

  // Bytes that the peer's kernel has not confirmed.
  bool isConfirmed() const;
  // The kernel has repeated itself for a long time without any answer.
  bool isUnanswered() const;
  void cut(const Error& why);

  // Best effort, never waits: `message` if no frame is half written.
  void lastWords(const std::string& message);
  // Drops the queue. Orderly for the receiver: what was written still arrives.
  void close();

 private:
  enum class State { kIdle, kConnecting, kOpen };

  struct Frame {
    FrameHeader header;
    const char* payload;
    std::function<void()> onSent;
    std::unique_ptr<char[]> own;  // the copy, after detachPayload()
  };

  void detach(Frame& frame);
  void consume(size_t written);
  void tryToConnect();
  void finishConnecting();
  bool readControl();
  Error gone(const std::string& how) const;
  void cutByErrno(int errnoValue);

  const int peer_;
  const int self_;
  TcpCounters& counters_;
  State state_ = State::kIdle;
  FileDescriptor socket_;
  std::string host_;
  uint16_t port_ = 0;
  std::string where_;  // both, for messages
  bool shutOut_ = false;
  int attempts_ = 0;

  TcpHello hello_;
  size_t helloSent_ = 0;
  std::deque<Frame> queue_;
  size_t frontSent_ = 0;  // bytes of header and payload of the first frame
  uint64_t framesQueued_ = 0;
  bool flushing_ = false;  // inside onSent: leave the writing to the flush() that is under way

  std::string control_;
  StreamEnd end_ = StreamEnd::kNone;
  std::optional<Error> why_;
  uint64_t framesBehindGoodbye_ = 0;
};

// TCP_NODELAY and keepalive.
void configureStream(int fd);

}  // namespace taco
