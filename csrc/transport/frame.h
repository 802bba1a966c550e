#pragma once

#include <cstdint>
#include <type_traits>

#include "csrc/data/call.h"

namespace taco {

enum class FrameKind : uint32_t {
  kCollective = 1,  // a piece of a collective: `call` and `step` say which
  kEager,           // point to point: tag + payload, buffered by the receiver if nobody waits
  kRequestToSend,   // point to point: a large message waits for the receiver's word
  kClearToSend,     // its answer
  kRendezvousData,  // a piece of the large message itself
  kWithdraw,        // the sender of a rendezvous has given up
  kCredit,          // the receiver has consumed `size` eager bytes
  kFail,            // "I have failed"; the payload is the reason as text
  kGoodbye,         // "I am closing on purpose": what follows is the end of the stream
};

// Point-to-point fields; which ones are used depends on the kind.
struct PointToPointFields {
  int64_t tag;
  uint64_t id;     // of a rendezvous, chosen by the sender
  uint64_t size;   // of the whole message, or of a credit
  uint64_t extra;  // kRendezvousData: offset of the piece; kClearToSend: the answer
};

// In front of every payload. Same byte order on both sides: the handshake refuses a peer whose
// order or struct sizes differ.
struct FrameHeader {
  FrameKind kind;
  uint32_t step;   // which piece of the collective
  uint64_t bytes;  // of the payload that follows
  union {
    Call call;
    PointToPointFields p2p;
  };
  FrameHeader() : kind(FrameKind::kGoodbye), step(0), bytes(0), p2p{} {}
};
static_assert(std::is_trivially_copyable_v<FrameHeader> && sizeof(FrameHeader) == 48);

}  // namespace taco
