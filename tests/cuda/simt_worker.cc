#include "tests/cuda/simt_worker.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace taco::simt {
namespace {

constexpr size_t kStackBytes = 128 << 10;
// Not a power of two, lest the used ends of all stacks fall into the same lines of the caches.
constexpr size_t kStackStride = kStackBytes + 9 * 64;
constexpr int kWarp = 32;

std::string text(const Where& where) {
  const std::string file = where.file_name();
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(where.line());
}

bool isSame(const Where& a, const Where& b) {
  return a.line() == b.line() &&
         (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

const char* name(WarpFunction function) {
  switch (function) {
    case WarpFunction::kShuffle:
      return "a shuffle";
    case WarpFunction::kBallot:
      return "a ballot";
    case WarpFunction::kMatch:
      return "__match_any_sync";
    case WarpFunction::kSync:
      return "__syncwarp";
  }
  return "";
}

thread_local Worker* theWorker = nullptr;

}  // namespace

Worker* currentWorker() { return theWorker; }

double cpuSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void Worker::run(Launch* launch) {
  launch_ = launch;
  theWorker = this;
  if (threads_.size() != launch->threads) {
    threads_.assign(launch->threads, {});
    stacks_ = std::make_unique_for_overwrite<char[]>(kStackStride * launch->threads);
    ready_.resize(launch->threads + 1);
  }
  place.blockSize.x = launch->threads;
  place.gridSize.x = launch->blocks;
  while (!launch->failed) {
    const unsigned next = launch->nextBlock++;
    if (next >= launch->blocks) break;
    runBlock(launch->blockOrder[next]);
  }
  theWorker = nullptr;
}

void Worker::fiberMain() {
  // Not held over a switch: only `this` of the worker, which never changes for a fiber.
  Worker& worker = *theWorker;
  fiberBegins(&worker.main_);
  while (true) {
    (*worker.launch_->kernel)();
    worker.threads_[worker.current_].state = Thread::State::kFinished;
    ++worker.finished_;
    worker.leave();
  }
}

void Worker::runBlock(unsigned block) {
  place.block.x = block;
  atBarrier_ = finished_ = 0;
  readyBegin_ = readyEnd_ = 0;
  for (const unsigned i : launch_->threadOrder) {
    Thread& thread = threads_[i];
    if (!thread.isPrepared) {
      prepareFiber(&thread.context, stacks_.get() + i * kStackStride, kStackBytes, fiberMain);
      thread.isPrepared = true;
    }
    thread.state = Thread::State::kReady;
    makeReady(i);
  }
  while (readyBegin_ != readyEnd_) {
    current_ = ready_[readyBegin_++ % ready_.size()];
    place.thread.x = current_;
    switchContext(&main_, &threads_[current_].context);
    if (launch_->failed) return abandonAll();
  }
  if (finished_ < threads_.size()) {
    launch_->fail(stuck());
    abandonAll();
  }
}

// Whatever is on the fibers' stacks is forgotten: kernels keep nothing there that needs a
// destructor.
void Worker::abandonAll() {
  for (Thread& thread : threads_) thread.isPrepared = false;
}

void Worker::complain(const std::string& why) {
  launch_->fail(why + " (block " + std::to_string(place.block.x) + ", thread " +
                std::to_string(current_) + ")");
}

// Apart from complain(), so that no text is left on the stack.
void Worker::abandon() {
  leave();
  std::abort();  // nobody comes back to an abandoned fiber
}

// Nobody can run any more, but not all are finished.
std::string Worker::stuck() const {
  const std::string inBlock = " in block " + std::to_string(place.block.x);
  for (unsigned i = 0; i < threads_.size(); ++i) {
    if (threads_[i].state == Thread::State::kInWarp) {
      return std::string(name(threads_[i].function)) + " at " + text(threads_[i].where) +
             " waits for ever" + inBlock + ": " + complaintAbout(threads_[i], i / kWarp);
    }
  }
  return "the barrier at " + text(barrier_) + " is reached by " + std::to_string(atBarrier_) +
         " of " + std::to_string(threads_.size()) + " threads" + inBlock +
         ", the others have finished";
}

std::string Worker::complaintAbout(const Thread& caller, unsigned warp) const {
  for (int lane = 0; lane < kWarp; ++lane) {
    if ((caller.mask >> lane & 1) == 0) continue;
    const unsigned index = warp * kWarp + static_cast<unsigned>(lane);
    const std::string who = "lane " + std::to_string(lane) + " of its mask ";
    if (index >= threads_.size()) return who + "does not exist";
    const Thread& other = threads_[index];
    if (other.state == Thread::State::kFinished) return who + "has finished";
    if (other.state == Thread::State::kAtBarrier)
      return who + "is at the barrier at " + text(other.where);
    if (other.state == Thread::State::kInWarp && other.mask != caller.mask) {
      return who + "has called with another mask at " + text(other.where);
    }
    if (other.state == Thread::State::kInWarp && other.function != caller.function) {
      return who + "is in " + name(other.function) + " at " + text(other.where);
    }
  }
  return "its lanes wait in a circle";
}

uint64_t Worker::meetWarp(WarpFunction function, uint32_t mask, uint64_t value, int lane,
                          Where where) {
  Thread& self = threads_[current_];
  const unsigned warp = current_ / kWarp;
  const auto own = static_cast<int>(current_ % kWarp);
  if ((mask >> own & 1) == 0) {
    complain(std::string(name(function)) + " at " + text(where) + " is called by lane " +
             std::to_string(own) + ", which is not in its mask");
    abandon();
  }
  if (function == WarpFunction::kShuffle && (mask >> lane & 1) == 0) {
    complain("a shuffle at " + text(where) + " reads lane " + std::to_string(lane) +
             ", which is not in its mask");
    abandon();
  }
  self.function = function;
  self.mask = mask;
  self.value = value;
  self.lane = lane;
  self.where = where;
  self.state = Thread::State::kInWarp;

  Thread* const lanes = &threads_[warp * kWarp];
  const size_t existing = std::min<size_t>(kWarp, threads_.size() - warp * kWarp);
  // From above: in ascending order the highest lane is the last to come.
  for (uint32_t left = mask; left != 0;) {
    const auto other = static_cast<size_t>(kWarp - 1 - __builtin_clz(left));
    left ^= 1u << other;
    const bool isHere = other < existing && lanes[other].state == Thread::State::kInWarp &&
                        lanes[other].mask == mask && lanes[other].function == function;
    if (!isHere) {
      leave();  // the last to come has left a result
      return self.result;
    }
  }

  uint64_t ballot = 0;
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int other = __builtin_ctz(left);
    if (lanes[other].value != 0) ballot |= uint64_t{1} << other;
  }
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int other = __builtin_ctz(left);
    Thread& thread = lanes[other];
    switch (function) {
      case WarpFunction::kShuffle:
        thread.result = lanes[thread.lane].value;
        break;
      case WarpFunction::kBallot:
        thread.result = ballot;
        break;
      case WarpFunction::kMatch:
        thread.result = 0;
        for (uint32_t peers = mask; peers != 0; peers &= peers - 1) {
          const int peer = __builtin_ctz(peers);
          if (lanes[peer].value == thread.value) thread.result |= uint64_t{1} << peer;
        }
        break;
      case WarpFunction::kSync:
        break;
    }
  }
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const auto other = static_cast<unsigned>(__builtin_ctz(left));
    lanes[other].state = Thread::State::kReady;
    if (other != static_cast<unsigned>(own)) makeReady(warp * kWarp + other);
  }
  return self.result;
}

void Worker::meetBlock(Where where) {
  Thread& self = threads_[current_];
  if (atBarrier_ == 0) {
    barrier_ = where;
  } else if (!isSame(barrier_, where)) {
    complain("threads of a block are at the barriers at " + text(barrier_) + " and " + text(where) +
             " at the same time");
    abandon();
  }
  self.where = where;
  self.state = Thread::State::kAtBarrier;
  ++atBarrier_;
  if (atBarrier_ < threads_.size()) return leave();
  atBarrier_ = 0;
  for (const unsigned i : launch_->threadOrder) {
    threads_[i].state = Thread::State::kReady;
    if (i != current_) makeReady(i);
  }
}

void Worker::sleep() {
  if (cpuSeconds() > launch_->deadline) {
    complain("something that is waited for does not come");
    abandon();
  }
  makeReady(current_);
  if (readyEnd_ - readyBegin_ == 1) sched_yield();  // only another block can change anything
  leave();
}

}  // namespace taco::simt
