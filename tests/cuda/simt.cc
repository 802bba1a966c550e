#include "tests/cuda/simt.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda/simt_worker.h"

namespace taco::simt {
namespace {

// Workers beside the caller's thread.
class Pool {
 public:
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      isOver_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void run(Launch* launch, unsigned workers) {
    while (threads_.size() + 1 < workers) {
      threads_.emplace_back([this, index = threads_.size()] { serve(index); });
    }
    {
      const std::lock_guard lock(mutex_);
      launch_ = launch;
      wanted_ = workers - 1;
      busy_ = workers - 1;
      ++generation_;
    }
    if (workers > 1) wake_.notify_all();
    own_.run(launch);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
  }

 private:
  void serve(size_t index) {
    Worker worker;
    uint64_t seen = 0;
    while (true) {
      Launch* launch = nullptr;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return isOver_ || (generation_ != seen && index < wanted_); });
        if (isOver_) return;
        seen = generation_;
        launch = launch_;
      }
      worker.run(launch);
      const std::lock_guard lock(mutex_);
      if (--busy_ == 0) done_.notify_one();
    }
  }

  Worker own_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_, done_;
  Launch* launch_ = nullptr;
  uint64_t generation_ = 0;
  size_t wanted_ = 0, busy_ = 0;
  bool isOver_ = false;
  std::vector<std::thread> threads_;  // only the launching thread's
};

std::vector<unsigned> orderOf(unsigned count, uint32_t seed) {
  std::vector<unsigned> order(count);
  std::iota(order.begin(), order.end(), 0u);
  if (seed != 0) std::shuffle(order.begin(), order.end(), std::minstd_rand(seed));
  return order;
}

}  // namespace

Options& options() {
  static Options theOptions;
  return theOptions;
}

void launch(unsigned blocks, unsigned threads, const std::function<void()>& kernel) {
  if (blocks == 0 || threads == 0 || threads > 1024) {
    throw Error("a launch of " + std::to_string(blocks) + " blocks of " + std::to_string(threads) +
                " threads: a GPU takes at least 1 block of 1 to 1024 threads");
  }
  static Pool pool;
  Launch launch;
  launch.blocks = blocks;
  launch.threads = threads;
  launch.kernel = &kernel;
  launch.blockOrder = orderOf(blocks, options().seed);
  launch.threadOrder = orderOf(threads, options().seed);
  launch.deadline = cpuSeconds() + options().waitSeconds;
  const auto workers = static_cast<unsigned>(std::max(1, options().workers));
  pool.run(&launch, std::min(workers, blocks));
  if (launch.failed) throw Error(launch.why);
}

uint64_t meetWarp(WarpFunction function, uint32_t mask, uint64_t value, int lane, Where where) {
  return currentWorker()->meetWarp(function, mask, value, lane, where);
}
void meetBlock(Where where) { currentWorker()->meetBlock(where); }
void sleep() { currentWorker()->sleep(); }

}  // namespace taco::simt
