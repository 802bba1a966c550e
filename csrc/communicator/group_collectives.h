#pragma once

#include "csrc/communicator/collectives.h"
#include "csrc/communicator/links.h"
#include "csrc/link/link.h"
#include "csrc/topology/key_value_store.h"

namespace taco {

// The Collectives of one group: numbers each operation, writes its fingerprint, chooses the
// algorithm and hands over to the links. One object for each task of the ordered lane.
//
// A wait that lasts shows in the store what this rank is in, and looks there for what the one it
// waits for is in: in a 2D all-reduce and a flat operation two ranks may wait for each other on
// different links, where no fingerprint meets another.
class GroupCollectives : public Collectives, private LongWait {
 public:
  GroupCollectives(Links& links, const Grid& grid, const Settings& settings, KeyValueStore& store,
                   uint64_t& sequence, const Deadline& deadline)
      : links_(links),
        grid_(grid),
        settings_(settings),
        store_(store),
        sequence_(sequence),
        deadline_(deadline) {}

  int rank() const override { return links_.flat().rank(); }
  int size() const override { return links_.flat().size(); }

  void broadcast(Buffer buffer, int root) override;
  void allReduce(Buffer buffer, const ReduceSpec& spec) override;
  void reduce(ConstBuffer in, Buffer out, const ReduceSpec& spec, int root) override;
  void allGather(ConstBuffer in, std::span<const Buffer> outs) override;
  void allGatherUneven(ConstBuffer in, std::span<const Buffer> outs) override;
  void gather(ConstBuffer in, std::span<const Buffer> outs, int root) override;
  void scatter(std::span<const ConstBuffer> ins, Buffer out, int root) override;
  void reduceScatter(std::span<const ConstBuffer> ins, Buffer out,
                     const ReduceSpec& spec) override;
  void allToAll(std::span<const ConstBuffer> sends, std::span<const Buffer> receives) override;
  void barrier() override;

 private:
  OpContext next(OpKind kind, DType dtype, uint64_t count, int root = -1);
  OpContext next(OpKind kind, DType dtype, uint64_t count, const ReduceSpec& spec, int root = -1);
  void checkRoot(const char* op, int root) const;
  void waitingFor(int rank) override;

  Links& links_;
  const Grid& grid_;
  const Settings& settings_;
  KeyValueStore& store_;
  uint64_t& sequence_;  // of the group; the lane runs one task at a time
  Call current_;        // the operation this rank is in
  uint64_t shown_ = 0;  // sequence of the operation that the store shows
  Deadline deadline_;
};

}  // namespace taco
