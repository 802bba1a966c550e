#pragma once

#include "csrc/communicator/collectives.h"
#include "csrc/communicator/links.h"
#include "csrc/communicator/status_board.h"
#include "csrc/link/link.h"

namespace taco {

// The Collectives of one group: numbers each operation, writes its fingerprint, chooses the
// algorithm and hands over to the links. One object for each task of the ordered lane.
//
// A wait that lasts compares through the status board what this rank and the one it waits for are
// in: they may wait for each other on different links, where no fingerprint meets another.
class GroupCollectives : public Collectives, private LongWait {
 public:
  GroupCollectives(Links& links, const Grid& grid, const Settings& settings, StatusBoard& board,
                   uint64_t& sequence, const Deadline& deadline)
      : links_(links),
        grid_(grid),
        settings_(settings),
        board_(board),
        sequence_(sequence),
        deadline_(deadline) {}

  int rank() const override { return links_.flat().rank(); }
  int size() const override { return links_.flat().size(); }

  void broadcast(Buffer buffer, int root) override;
  void allReduce(Buffer buffer, const ReduceSpec& spec) override;
  void reduce(ConstBuffer in, Buffer out, const ReduceSpec& spec, int root) override;
  void allGather(ConstBuffer in, std::span<const Buffer> outs) override;
  void gather(ConstBuffer in, std::span<const Buffer> outs, int root) override;
  void scatter(std::span<const ConstBuffer> ins, Buffer out, int root) override;
  void reduceScatter(std::span<const ConstBuffer> ins, Buffer out,
                     const ReduceSpec& spec) override;
  void allToAll(std::span<const ConstBuffer> sends, std::span<const Buffer> receives) override;
  void barrier() override;

 private:
  OpContext begin(Call call);
  void checkRoot(const char* op, int root) const;
  void waitingFor(int rank) override;

  Links& links_;
  const Grid& grid_;
  const Settings& settings_;
  StatusBoard& board_;
  uint64_t& sequence_;  // of the group; the lane runs one task at a time
  Call current_;        // the operation this rank is in
  Deadline deadline_;
};

}  // namespace taco
