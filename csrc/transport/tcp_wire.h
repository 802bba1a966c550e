#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <type_traits>

#include "csrc/base/error.h"
#include "csrc/transport/frame.h"

namespace taco {

// What TcpTransport writes besides its users' frames.
//
// Each direction between two ranks is a TCP connection of its own, made by the rank that sends in
// it. The sender writes one TcpHello and then frames (header, payload). Against the stream, the
// acceptor writes at most one control message in the life of the connection: why it failed, or its
// goodbye. Nothing else ever goes that way, so it can always be written without waiting, also by a
// rank whose own stream is blocked in the middle of a frame.

using TcpSecret = std::array<uint8_t, 16>;  // random, shared by the ranks through their store

struct TcpHello {
  char magic[8] = {'T', 'A', 'C', 'O', '-', 't', 'c', 'p'};
  uint32_t byteOrder = 0x01020304;
  uint16_t version = 1;
  uint16_t headerBytes = sizeof(FrameHeader);
  TcpSecret secret{};
  uint64_t channel = 0;  // which group and lane: channelId()
  int32_t rank = -1;     // of the sender
  int32_t size = 0;      // of the group
};
static_assert(std::is_trivially_copyable_v<TcpHello> && sizeof(TcpHello) == 48);

uint64_t channelId(const std::string& group);

// Why `hello` may not enter, where `expected` is what this rank would say itself; "" if it may.
std::string refusal(const TcpHello& hello, const TcpHello& expected);

// How a stream has ended.
enum class StreamEnd {
  kNone,     // it has not
  kGoodbye,  // on purpose, after everything that was sent
  kFailed,   // the peer told why it failed
  kCut,      // closed or broken without a word
};

// Longer reasons are cut off: a control message must fit into an empty socket buffer.
constexpr size_t kLongestReason = 4000;

std::string failMessage(const Error& why);
// `framesSent`: how many frames the sender of this message has ever sent to its receiver on its own
// stream, whose goodbye is still to come if there were any.
std::string goodbyeMessage(uint64_t framesSent);

// The error that a kFail message of rank `peer` stands for on rank `self`.
Error failureToldBy(int peer, int self, const FrameHeader& header, const std::string& reason);

// What an error of a connection that was open says about its peer: "is gone: ...".
std::string goneBecause(int errnoValue);

struct TcpCounters {
  std::atomic<uint64_t> sent{0};  // relaxed: statistics, read by other threads
  std::atomic<uint64_t> received{0};
};

}  // namespace taco
