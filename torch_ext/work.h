// c10d's handle on one operation in flight.
#pragma once

#include <ATen/ThreadLocalState.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "csrc/base/error.h"

namespace taco {

struct WorkFacts {
  int rank = -1;
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* title = nullptr;         // "taco:all_reduce"; null: no profiler event
  std::vector<at::Tensor> inputs;      // the profiler shows their shapes
  std::vector<at::Tensor> outputs;     // result() and the future's value
  uint64_t sequence = 0;
  const void* group = nullptr;         // whose ordered lane runs it (see nesting.h); null: none
};

// Pending, then settled exactly once: by the body that ran the operation, or by the ticket of one
// that failed; whoever comes second is ignored. Settling goes in a fixed order: the future gets its
// value (its callbacks run here, on the settling thread, with none of our locks held), then
// finish() wakes the waiters, then the listeners hear of it.
//
// The future is made when somebody asks for it: most works are only waited for, and marking a
// future complete runs foreign code.
class TacoWork final : public c10d::Work {
 public:
  using Clock = decltype(c10d::WorkInfo::timeStarted)::clock;  // changed between torch 2.9 and 2.11
  // Runs in the settling thread before finish().
  using CompletionHook = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;
  using Listener = std::function<void(const std::optional<Error>&)>;

  explicit TacoWork(WorkFacts facts, CompletionHook hook = nullptr);

  void settle(const std::optional<Error>& error, int sourceRank = -1);
  // At once if it is settled already.
  void onSettled(Listener listener);

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  bool isPointToPoint() const { return group_ == nullptr; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  uint64_t getSequencenumber() const override;
  float getDuration() const override;  // milliseconds, from issue to completion

 private:
  using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;
  void completeFutures(const FuturePtr& values, const FuturePtr& outcome);
  FuturePtr futureOf(FuturePtr TacoWork::*member, c10::TypePtr type);
  std::string title() const;

  const char* const title_;
  const void* const group_;
  const std::vector<at::Tensor> outputs_;
  const uint64_t sequence_;
  const CompletionHook hook_;
  const Clock::time_point started_ = Clock::now();

  mutable std::mutex stateMutex_;  // guards all below; base class's mutex_ guards its own state
  bool settled_ = false;
  std::optional<Error> error_;
  int sourceRank_ = -1;
  Clock::time_point finished_;
  FuturePtr values_;   // of list[Tensor]; null until asked for
  FuturePtr outcome_;  // of int (c10d::WorkResult); null until asked for
  std::optional<at::ThreadLocalState> askersState_;  // callbacks run as on the thread that asked
  bool listenersCalled_ = false;
  std::vector<Listener> listeners_;
};

// One Work for many: settles when all parts have, with the first error. Parts are only counted, not
// kept, so that an abandoned collection holds no memory.
class JoinedWork {
 public:
  void add(TacoWork& part);
  // No more parts follow; `work` settles with the last of them.
  void close(c10::intrusive_ptr<TacoWork> work);
  bool hasCollectives() const { return hasCollectives_; }

 private:
  struct Count {
    std::mutex mutex;  // guards all below
    int pending = 1;   // parts, and 1 for "not closed yet"
    std::optional<Error> error;
    c10::intrusive_ptr<TacoWork> work;
  };
  static void partDone(const std::shared_ptr<Count>& count, const std::optional<Error>& error);

  std::shared_ptr<Count> count_ = std::make_shared<Count>();
  bool hasCollectives_ = false;
};

}  // namespace taco
