#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "csrc/base/wait.h"
#include "csrc/link/link.h"
#include "csrc/link/shared_block.h"
#include "csrc/link/shm_segment.h"

namespace taco {

// Ranks that share memory. Everything happens in steps, counted alike on all members for the life
// of the link. In step s a rank puts data for the others into its slot s % 2, says that it has
// arrived, waits for the others, and takes what it needs out of their slots; then it has finished
// the step. A slot is written again two steps later, when everybody has finished: with two slots a
// rank may be one step ahead of the slowest.
//
// The first step of every operation is a meeting: nobody looks at data before all have arrived and
// have compared fingerprints, so ranks that call different things fail before anything is mixed up.
//
// Bytes that cross between ranks, per rank, for an all-reduce of S bytes over P ranks:
// up to kOneShotBytes S in, (P-1) S out; above, 2 (P-1)/P S written and as much read.
class ShmLink : public Link {
 public:
  // `members`: ranks in the group, for messages. `abort` ends every wait.
  ShmLink(std::unique_ptr<ShmSegment> segment, std::vector<int> members, int member,
          const WaitPolicy& policy, const AbortSignal& abort);

  int rank() const override { return member_; }
  int size() const override { return static_cast<int>(members_.size()); }
  std::string describe() const override;

  void allReduce(const OpContext& op, Buffer buffer, const Reduction& reduction) override;
  void reduceScatter(const OpContext& op, std::span<const ConstBuffer> parts, Buffer out,
                     const Reduction& reduction) override;
  void allGather(const OpContext& op, ConstBuffer in, std::span<const Buffer> outs) override;
  void broadcast(const OpContext& op, Buffer buffer, int root) override;
  void exchange(const OpContext& op, std::span<const ConstBuffer> sends,
                std::span<const Buffer> receives) override;
  bool sharesMemory() const override { return true; }
  std::shared_ptr<void> sharedMemory(const OpContext& op, size_t bytes,
                                     std::string* whyNot) override;
  void fail(const Error& why) override;

  // Orderly end: whoever waits for this rank later is told that it has left. No verb may follow.
  void leave() { segment_->leave(); }

  // Bytes that this rank has put into shared memory for others.
  uint64_t bytesShared() const { return bytesShared_.load(std::memory_order_relaxed); }

  // Among more than two ranks, messages up to this many bytes are reduced in one step by everybody;
  // those of a few lines always are, in lines that carry their own flags.
  static constexpr size_t kOneShotBytes = 8 << 10;

 private:
  // Steps of the current operation. `first` steps carry and compare the fingerprint.
  void beginStep(const OpContext& op, bool first);   // this rank's slot may be written
  void arrive();                                     // ... and is complete
  void waitAllArrived(const OpContext& op, bool first);
  void waitArrived(const OpContext& op, int member, uint32_t step);
  void finishStep();
  void waitFinished(const OpContext& op, uint32_t step);

  enum class Flag { kArrived, kFinished };
  SharedCounter& counter(int member, Flag flag);
  void waitFor(const OpContext& op, int member, Flag flag, uint32_t target);
  std::string membersBehind(Flag flag, uint32_t target);
  void compare(const OpContext& op, int member, uint32_t step);
  [[noreturn]] void failAndThrow(const Error& why);

  void allReduceOneShot(const OpContext& op, Buffer buffer, const Reduction& reduction);
  void allReducePush(const OpContext& op, Buffer buffer, const Reduction& reduction);
  // Data and flag in one line: see shm_link_small.cc.
  static constexpr int kMostLineRanks = 16;
  bool fitsLines(size_t bytes) const;
  void allReduceLines(const OpContext& op, Buffer buffer, const Reduction& reduction);
  void waitForLine(const OpContext& op, int member, const ShmSegment::Line& line, uint64_t flag);

  // In buffers that all members see: see shm_link_shared.cc.
  using Place = ShmSegment::Place;
  Place placeOf(Buffer buffer) const;  // block 0: not in a shared block
  int placesNamed() const;  // by how many members, in the step that has begun
  char* addressOf(const OpContext& op, int member, size_t bytes);
  void allReduceShared(const OpContext& op, Buffer buffer, const Reduction& reduction);
  void dropReturnedBlocks();

  static void ownSoon(const void* begin, size_t bytes);
  void share(char* slot, const void* data, size_t bytes);
  void countShared(size_t bytes) {
    bytesShared_.store(bytesShared() + bytes, std::memory_order_relaxed);
  }

  // The members after this one, in rotated order, so that they do not all read the same rank.
  int after(int distance) const { return (member_ + distance) % size(); }

  std::unique_ptr<ShmSegment> segment_;
  std::vector<int> members_;
  int member_;
  WaitPolicy policy_;
  const AbortSignal& abort_;
  size_t windowBytes_;          // how much of a slot is used
  std::vector<const void*> sources_;  // of one reduction
  std::vector<std::shared_ptr<SharedBlock>> blocks_;  // number n at n - 1; null: given back
  uint32_t step_ = 0;           // the step this rank is in, or will begin next
  uint32_t knownFinished_ = 0;  // all members have finished the steps before this one
  std::atomic<uint64_t> bytesShared_{0};  // written by the thread that runs the verbs, read by any
};

}  // namespace taco
