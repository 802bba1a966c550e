#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "csrc/base/deadline.h"
#include "csrc/base/error.h"
#include "csrc/base/long_wait.h"
#include "csrc/data/buffer.h"
#include "csrc/data/call.h"
#include "csrc/data/reduce.h"

namespace taco {

// What a verb needs to know besides its buffers: the fingerprint that all ranks compare, and the
// budget that all steps of the operation share.
struct OpContext {
  Call call;
  Deadline deadline = Deadline::never();
  LongWait* longWait = nullptr;  // may be null
};

// The pieces of a pipelined all-reduce. ready(i) is called before piece i is needed and returns
// where it is; done(i) is called when piece i is reduced everywhere. Both may use other links, so
// their order is the same on every rank: ready(i + kPiecesAhead) just before done(i).
class Pieces {
 public:
  virtual ~Pieces() = default;
  virtual size_t count() const = 0;
  virtual Buffer ready(size_t piece) = 0;
  virtual void done(size_t piece) = 0;
};

inline constexpr size_t kPiecesAhead = 2;

// Calls ready(i), work(i, its buffer), done(i - kPiecesAhead) for all pieces, in that order.
template <typename Work>
void runPieces(Pieces& pieces, Work work) {
  const size_t count = pieces.count();
  for (size_t i = 0; i < count + kPiecesAhead; ++i) {
    if (i < count) work(i, pieces.ready(i));
    if (i >= kPiecesAhead) pieces.done(i - kPiecesAhead);
  }
}

// The error of an exchange in which a send and its receive differ; ranks are those of the group.
Error sizesDiffer(const Call& call, int sender, size_t sentBytes, int receiver,
                  size_t expectedBytes);

// A fixed set of ranks that act together. Every member calls the same verb with matching sizes;
// members are numbered 0..size()-1 within the link. Verbs return when this rank's part is complete.
// A verb that throws has told the other members why (they throw as well), and the link is finished.
class Link {
 public:
  virtual ~Link() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string describe() const = 0;  // "shared memory, 4 ranks"

  // In place: every rank's buffer becomes the reduction over the ranks, in rank order, bit for bit
  // the same on all of them.
  virtual void allReduce(const OpContext& op, Buffer buffer, const Reduction& reduction) = 0;

  // The same for several pieces whose inputs become ready one after the other.
  virtual void allReducePieces(const OpContext& op, Pieces& pieces, const Reduction& reduction);

  // parts[r] is this rank's contribution to rank r; `out` becomes the reduction of everyone's
  // parts[rank()]. Parts may differ in size between ranks (all members agree on them) and may be
  // empty. `out` may be parts[rank()] itself.
  virtual void reduceScatter(const OpContext& op, std::span<const ConstBuffer> parts, Buffer out,
                             const Reduction& reduction) = 0;

  // outs[r] becomes rank r's `in`. Sizes may differ between ranks. `in` may be outs[rank()] itself.
  virtual void allGather(const OpContext& op, ConstBuffer in, std::span<const Buffer> outs) = 0;

  virtual void broadcast(const OpContext& op, Buffer buffer, int root) = 0;

  // sends[r] goes to rank r, receives[r] comes from rank r; empty ones are fine. A rank knows only
  // its own sizes: where a send and its receive differ, all members throw kMismatch. No send may
  // overlap a receive, except that sends[rank()] may be receives[rank()].
  virtual void exchange(const OpContext& op, std::span<const ConstBuffer> sends,
                        std::span<const Buffer> receives) = 0;

  // Whether sharedMemory() has any.
  virtual bool sharesMemory() const { return false; }
  // Collective: memory in which an all-reduce needs no copies, as long as every member's buffer lies
  // in such memory. Null, on all members, where the link shares no memory or there is no room for it
  // (`whyNot` says so). It stays valid as long as somebody holds it, beyond the link's end too.
  virtual std::shared_ptr<void> sharedMemory(const OpContext& op, size_t bytes,
                                             std::string* whyNot);

  // Tells the other members why this rank gives up; every later verb throws.
  virtual void fail(const Error& why) = 0;
};

}  // namespace taco
