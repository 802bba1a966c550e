#pragma once

#include "csrc/allreduce/topk_allreduce.h"
#include "csrc/communicator/collectives.h"
#include "csrc/communicator/flight_task.h"
#include "csrc/communicator/links.h"
#include "csrc/communicator/status_board.h"
#include "csrc/link/link.h"

namespace taco {

// The links that a compressed all-reduce of this shape uses, and the dense steps between.
TopkLinks topkLinks(const AllreducePlan& plan, Links& links, const Grid& grid);

// The Collectives of one group: numbers each operation, writes its fingerprint, chooses the
// algorithm and hands over to the links. One object for each task of the ordered lane.
//
// A wait that lasts compares through the status board what this rank and the one it waits for are
// in: they may wait for each other on different links, where no fingerprint meets another.
class GroupCollectives : public Collectives, private LongWait {
 public:
  GroupCollectives(Links& links, const Grid& grid, const Settings& settings, StatusBoard& board,
                   Residuals& residuals, uint64_t& sequence, FlightTask& flight,
                   const Deadline& deadline)
      : links_(links),
        grid_(grid),
        settings_(settings),
        board_(board),
        residuals_(residuals),
        sequence_(sequence),
        flight_(flight),
        deadline_(deadline) {}

  // The error of another rank, with what this one was in when it came, if it does not say so.
  Error withOperation(const Error& why) const;
  // The rank that this one has been waiting for for long, until now; else -1.
  int waitedFor() const;

  int rank() const override { return links_.flat().rank(); }
  int size() const override { return links_.flat().size(); }

  void broadcast(Buffer buffer, int root) override;
  void allReduce(Buffer buffer, const ReduceSpec& spec) override;
  void allReduce(Buffer buffer, const ReduceSpec& spec, const Compression& compression) override;
  void reduce(ConstBuffer in, Buffer out, const ReduceSpec& spec, int root) override;
  void allGather(ConstBuffer in, std::span<const Buffer> outs) override;
  void gather(ConstBuffer in, std::span<const Buffer> outs, int root) override;
  void scatter(std::span<const ConstBuffer> ins, Buffer out, int root) override;
  void reduceScatter(std::span<const ConstBuffer> ins, Buffer out,
                     const ReduceSpec& spec) override;
  void allToAll(std::span<const ConstBuffer> sends, std::span<const Buffer> receives) override;
  void barrier() override;
  std::shared_ptr<void> sharedMemory(size_t bytes, std::string* whyNot) override;

 private:
  // `elements`: of this rank, where `call` does not say it (only what all ranks agree on).
  OpContext begin(Call call, uint64_t elements);
  OpContext begin(const Call& call) { return begin(call, call.count); }
  void denseAllReduce(const OpContext& op, Buffer buffer, const ReduceSpec& spec,
                      const AllreducePlan& plan);
  void checkRoot(const char* op, int root) const;
  void waitingFor(int rank) override;

  Links& links_;
  const Grid& grid_;
  const Settings& settings_;
  StatusBoard& board_;
  Residuals& residuals_;
  uint64_t& sequence_;  // of the group; the lane runs one task at a time
  FlightTask& flight_;
  Call current_;  // the operation this rank is in
  Deadline deadline_;
  int waitedFor_ = -1;
  Clock::time_point askedAt_{};  // when the wait for that one was last asked about
};

}  // namespace taco
