#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/abort.h"
#include "csrc/base/deadline.h"
#include "csrc/base/function_ref.h"
#include "csrc/base/ticket.h"
#include "csrc/communicator/collectives.h"
#include "csrc/data/buffer.h"
#include "csrc/settings/settings.h"
#include "csrc/topology/key_value_store.h"

namespace taco {

struct CommunicatorConfig {
  int rank = 0;
  int size = 1;
  std::shared_ptr<KeyValueStore> store;  // a name space of this group's own
  std::map<std::string, std::string> environment;  // see processEnvironment()
  Millis timeout{30 * 60 * 1000};        // of construction, and of operations without their own
  std::optional<Deadline> deadline;      // of construction, if its time began earlier
  std::string groupName = "default";     // for messages
  std::vector<int> globalRanks;          // of the members in the job, for people; may be empty
};

// The whole engine behind one class, without torch: connects the ranks of one group, and runs
// their operations in two lanes. Collectives run first in, first out; sends and receives beside
// them. Thread-safe.
class Communicator {
 public:
  // Meets the other ranks through the store, agrees with them on the grid, connects the links.
  // Throws Error: kTimeout naming the ranks that did not come, kInvalidSettings (the same on all
  // ranks if they disagree).
  explicit Communicator(const CommunicatorConfig& config);
  ~Communicator();  // shutdown() if that was not called; never throws
  Communicator(const Communicator&) = delete;

  int rank() const;
  int size() const;

  // Run `body` in issue order after all collectives issued before. The body may copy, and call any
  // number of verbs of Collectives; it runs without any lock held. `timeout` <= 0: the group's. If
  // the body throws, the operation fails; unless the error is the caller's fault the whole group
  // fails with it, and the other ranks are told why. `title` (a literal) is what the flight record
  // calls it until it runs.
  //
  // run() returns when the body has run, on the calling thread if the lane is idle: why it failed,
  // if it did. submit() returns at once; the lane's thread runs it.
  std::optional<Error> run(Millis timeout, FunctionRef<void(Collectives&)> body,
                           const char* title = nullptr);
  TicketPtr submit(Millis timeout, std::function<void(Collectives&)> body,
                   const char* title = nullptr);

  // Point to point, matched by (source, tag) in order. The memory must stay valid until the ticket
  // is done; `keepAlive` is dropped then (what owns the memory). source -1: any rank; the ticket's
  // sourceRank() says which one. Throws Error(kInvalidArgument) for a bad rank.
  TicketPtr send(ConstBuffer buffer, int destination, int64_t tag, Millis timeout,
                 std::shared_ptr<void> keepAlive);
  TicketPtr receive(Buffer buffer, int source, int64_t tag, Millis timeout,
                    std::shared_ptr<void> keepAlive);

  void setTimeout(Millis timeout);
  Millis timeout() const;

  // The plan of an all-reduce of `bytes` bytes, as text and as fields (torch_taco.explain).
  AllreducePlan explainAllReduce(uint64_t bytes, DType dtype, ReduceOp op) const;
  // Whether an ordinary all-reduce of this kind is one that LIGHT_TOPK_* may compress.
  bool mayCompress(const AllreduceRequest& request) const;

  // What TopK has not sent yet. withResiduals() runs `use` when no collective runs, in issue order.
  // Throws what the group has failed with.
  struct ResidualPlace {
    ResidualDomain domain = ResidualDomain::kFlat;
    size_t begin = 0;  // in the buffer, of this rank's part
    size_t count = 0;
  };
  ResidualPlace residualPlace(uint64_t count, DType dtype) const;
  void withResiduals(FunctionRef<void(Residuals&)> use);
  // The storage with this number has died (csrc/topk/residuals.h).
  void forgetResiduals(uint64_t storage);

  std::string describe() const;  // the grid, the links and why: what TACO_LOG=info prints
  Traffic traffic() const;
  bool sharesMemory() const;  // all ranks are on one node and use its shared memory

  // Collectives issued so far on this rank (c10d's sequence number).
  uint64_t sequence() const;

  // The error that finished the group; empty while it is healthy.
  std::optional<Error> failure() const;

  // Waits for what was submitted (up to the group's timeout), says goodbye, joins the threads.
  void shutdown();
  // Fails everything pending at once, tells the peers, joins the threads.
  void abort(const std::string& why);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace taco
