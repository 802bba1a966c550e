#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "csrc/base/abort.h"
#include "csrc/base/deadline.h"
#include "csrc/base/ticket.h"
#include "csrc/transport/transport.h"

namespace taco {

// A group's sends and receives, matched by (source, tag) in order, beside its collectives: with a
// transport and a thread of their own, so that neither waits for the other. The thread is made at
// the first operation and sleeps while there is nothing to do. Thread-safe. The protocol is
// Messenger's.
//
// In a forked child every operation throws, and the destructor leaves everything as it is.
class PointToPoint {
 public:
  // `group` names the group in messages. `abort` must outlive this object.
  PointToPoint(std::unique_ptr<Transport> transport, const AbortSignal& abort, std::string group);
  ~PointToPoint();  // close(), without patience, if nobody called it
  PointToPoint(const PointToPoint&) = delete;
  PointToPoint& operator=(const PointToPoint&) = delete;

  // The memory must stay valid until the ticket is done; it is not touched afterwards, however the
  // operation ended. `keepAlive` is dropped right before the ticket is finished, with no lock held,
  // on the posting thread or on our own. Throws Error(kInvalidArgument) for a bad rank; everything
  // else fails the ticket.
  TicketPtr send(int peer, int64_t tag, const void* data, size_t bytes, const Deadline& deadline,
                 std::shared_ptr<void> keepAlive);

  // `peer` -1: from any rank; the ticket's sourceRank() says which one it was.
  TicketPtr receive(int peer, int64_t tag, void* data, size_t bytes, const Deadline& deadline,
                    std::shared_ptr<void> keepAlive);

  // Fails everything pending, and all that comes later; tells the peers why. From any thread.
  void fail(const Error& why);

  // Waits up to `maxWait` until posted sends have gone, fails what is left, says goodbye, joins the
  // thread.
  void close(Millis maxWait);

  uint64_t bytesSent() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // the thread's as well
};

}  // namespace taco
