#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "csrc/transport/file_descriptor.h"
#include "csrc/transport/tcp_wire.h"
#include "csrc/transport/transport.h"

namespace taco {

// The stream from one peer to this rank, after its hello: cuts the bytes into frames, asks the
// receiver where each payload goes, and reads it straight into there.
//
// A small staging buffer takes headers and whatever comes with them, so that a small frame costs
// one read; the rest of a payload bypasses it.
class TcpIncoming {
 public:
  TcpIncoming(int peer, int self, TcpCounters& counters)
      : peer_(peer), self_(self), counters_(counters) {}

  void adopt(FileDescriptor socket) { socket_ = std::move(socket); }

  bool isUsed() const { return used_ || socket_; }
  bool isLive() const { return socket_ && end_ == StreamEnd::kNone; }
  bool isPaused() const { return paused_; }

  // epoll has said that there may be something (the socket is watched edge-triggered).
  void markReadable(bool hangup) {
    readable_ = true;
    hangup_ |= hangup;
  }

  // Reads until nothing is left, the receiver refuses a frame, or `budget` bytes have come (so that
  // one busy peer does not starve the others). Returns true if anything moved.
  bool read(Transport::Receiver& receiver, size_t budget);
  bool wantsRead() const { return isLive() && readable_ && !paused_; }

  void resume() { paused_ = false; }
  bool hasOffer() const { return isLive() && state_ == State::kOffered && !paused_; }

  // The rest of the payload being read is dropped; its memory is not touched again.
  void discardPayload();
  // Drops what has arrived, up to `most` bytes; to be followed by more of the same, or by close().
  void discardAll(size_t most);

  StreamEnd end() const { return end_; }
  const Error& endReason() const { return *why_; }

  void lastWords(const std::string& message);  // against the stream; best effort, never waits
  void close();

 private:
  enum class State { kHeader, kOffered, kPayload };

  bool advance(Transport::Receiver& receiver);
  bool receive();
  void finishOwnFrame();
  void cut(const std::string& how);

  const int peer_;
  const int self_;
  TcpCounters& counters_;
  FileDescriptor socket_;
  bool used_ = false;
  bool readable_ = true;
  bool hangup_ = false;  // the end of the stream is near: read until it shows
  bool paused_ = false;

  std::array<char, 4096> staging_;
  size_t stagedBegin_ = 0;
  size_t stagedEnd_ = 0;
  size_t budget_ = 0;

  State state_ = State::kHeader;
  FrameHeader header_;
  char* landing_ = nullptr;  // where the next byte of the payload goes; null: nowhere
  uint64_t remaining_ = 0;   // of the payload
  std::string reason_;       // payload of a kFail

  StreamEnd end_ = StreamEnd::kNone;
  std::optional<Error> why_;
};

}  // namespace taco
