#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/abort.h"
#include "csrc/base/deadline.h"
#include "csrc/base/long_wait.h"
#include "csrc/transport/transport.h"

namespace taco {

// One posted send or receive of a collective. Owned by the poster, who keeps it alive until it is
// done or the mesh has failed.
struct Transfer {
  bool done = false;
  int peer = -1;
};

// A rank's channels for collectives: sends and receives are posted in the same order on both
// sides, so a frame needs no tag: the next frame of a peer belongs to the first posted receive,
// and Call + step + bytes are compared to find ranks that do different things.
// Used by one thread at a time (the ordered lane), except for fail(), which may come from anywhere.
class Mesh : private Transport::Receiver {
 public:
  Mesh(std::unique_ptr<Transport> transport, const AbortSignal& abort);
  ~Mesh() override;

  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }
  Transport& transport() { return *transport_; }

  // Posted: return at once (they may move bytes that can move without waiting). Throw the error of
  // a mesh that has failed.
  void send(int peer, const Call& call, uint32_t step, const void* data, size_t bytes,
            Transfer& transfer);
  void receive(int peer, const Call& call, uint32_t step, void* data, size_t bytes,
               Transfer& transfer);

  // Progresses everything until `transfer` is done. Throws Error: kTimeout naming the peer, the
  // call and the budget; kPeerFailed; kMismatch saying what both sides were doing; the abort
  // signal's reason. Before throwing, the mesh has failed: all posted transfers are dropped, the
  // peers have been told why, and every later call throws the same error.
  void wait(const Transfer& transfer, const Call& call, const Deadline& deadline,
            LongWait* longWait = nullptr);

  // Moves what can be moved without waiting (between other work, so that the wire stays busy).
  void poll();

  // Ends everything: wait() throws `why` on the thread that is in it. Returns when the transport
  // has let go of all memory. From any thread.
  void fail(const Error& why);
  // Orderly end: everything that was sent still arrives.
  void close(std::chrono::milliseconds maxWait);

 private:
  struct PostedReceive {
    Call call;
    uint32_t step;
    void* data;
    size_t bytes;
    Transfer* transfer;
  };

  void failLocked(const Error& why);
  [[noreturn]] void failAndThrow(const Error& why);
  void throwIfFailed() const;
  void watchThoseWaitedFor();
  const Error* whyNever(const Transfer& transfer) const;
  std::string disagreement(int peer, const FrameHeader& theirs, const PostedReceive& ours) const;

  Landing onHeader(int peer, const FrameHeader& header) override;
  void onArrived(int peer, const FrameHeader& header) override;
  void onLost(int peer, const Error& why, Loss how) override;

  std::atomic<bool> stopWanted_{false};  // true while fail() wants the lock
  std::mutex mutex_;                     // guards all below; held by wait() for a slice at a time
  std::unique_ptr<Transport> transport_;
  const AbortSignal& abort_;
  std::vector<std::deque<PostedReceive>> posted_;  // by peer
  std::vector<std::optional<Error>> lost_;         // by peer: why its channel is gone
  std::optional<Error> trouble_;  // found inside a callback, where the mesh cannot fail yet
  std::optional<Error> failure_;  // of the whole mesh
};

}  // namespace taco
