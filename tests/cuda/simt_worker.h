// Inside the shim: one launch, and the OS threads that share it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/cuda/fiber.h"
#include "tests/cuda/simt.h"

namespace taco::simt {

// Of the whole process: a wait that is stopped from outside is no wait for ever.
double cpuSeconds();

// What the workers of one launch share.
struct Launch {
  unsigned blocks = 0, threads = 0;
  const std::function<void()>* kernel = nullptr;
  std::vector<unsigned> blockOrder, threadOrder;
  double deadline = 0;

  std::atomic<unsigned> nextBlock = 0;
  std::atomic<bool> failed = false;
  std::mutex mutex;
  std::string why;  // guarded by mutex; the first cause

  void fail(const std::string& reason) {
    const std::lock_guard lock(mutex);
    if (!failed.exchange(true)) why = reason;
  }
};

struct Thread {
  enum class State { kReady, kInWarp, kAtBarrier, kFinished };

  Context context;
  State state = State::kFinished;
  bool isPrepared = false;
  Where where;
  // kInWarp
  WarpFunction function = WarpFunction::kSync;
  uint32_t mask = 0;
  uint64_t value = 0;
  int lane = 0;
  uint64_t result = 0;
};

// An OS thread's share of a launch: one block after the other.
class Worker {
 public:
  void run(Launch* launch);

  uint64_t meetWarp(WarpFunction function, uint32_t mask, uint64_t value, int lane, Where where);
  void meetBlock(Where where);
  void sleep();

 private:
  static void fiberMain();
  void runBlock(unsigned block);
  void makeReady(unsigned thread) { ready_[readyEnd_++ % ready_.size()] = thread; }
  void leave() { switchContext(&threads_[current_].context, &main_); }
  void complain(const std::string& why);
  [[noreturn]] void abandon();
  void abandonAll();
  std::string stuck() const;
  std::string complaintAbout(const Thread& caller, unsigned warp) const;

  Launch* launch_ = nullptr;
  Context main_;
  std::unique_ptr<char[]> stacks_;
  std::vector<Thread> threads_;
  unsigned current_ = 0;
  std::vector<unsigned> ready_;  // a ring
  size_t readyBegin_ = 0, readyEnd_ = 0;
  unsigned atBarrier_ = 0, finished_ = 0;
  Where barrier_;  // where the first of them is
};

// Of the calling OS thread, inside a launch.
Worker* currentWorker();

}  // namespace taco::simt
