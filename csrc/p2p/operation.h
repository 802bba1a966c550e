#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "csrc/base/deadline.h"
#include "csrc/base/ticket.h"

namespace taco {

constexpr int kAnySource = -1;

// What sends and receives have in common. Shared by the lists that it stands in; `finished` says
// that its ticket is decided and its memory is no longer ours.
struct Operation {
  TicketPtr ticket = std::make_shared<Ticket>();
  std::shared_ptr<void> keepAlive;
  int peer = kAnySource;
  int64_t tag = 0;
  char* data = nullptr;  // a send only reads it
  size_t bytes = 0;
  Deadline deadline = Deadline::never();
  Clock::time_point begun = Clock::now();
  bool finished = false;

  virtual ~Operation() = default;
  virtual std::string describe() const = 0;  // "send of 8 bytes to rank 1 with tag 0"
  virtual std::string waitsFor() const = 0;  // "rank 1 to receive"
};

// A message that waits for the receiver's word (rendezvous), or for this rank's own receive.
struct SendOperation : Operation {
  uint64_t id = 0;        // unique on this rank
  size_t written = 0;     // bytes that the transport has sent
  bool inFlight = false;  // the transport holds a piece of the memory

  std::string describe() const override;
  std::string waitsFor() const override;
};

struct ReceiveOperation : Operation {
  // Where it stands: posted, or matched with a message that is not complete yet.
  enum class Stage { kPosted, kEager, kRendezvous };
  Stage stage = Stage::kPosted;
  int source = kAnySource;  // the matched one
  uint64_t id = 0;          // of the rendezvous

  std::string describe() const override;
  std::string waitsFor() const override;
};

using SendPtr = std::shared_ptr<SendOperation>;
using ReceivePtr = std::shared_ptr<ReceiveOperation>;

}  // namespace taco
