#include "torch_ext/work.h"

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "csrc/base/format.h"
#include "csrc/base/log.h"
#include "torch_ext/errors.h"
#include "torch_ext/nesting.h"

namespace taco {
namespace {

// Longer than this is for ever: adding it to now() could overflow.
constexpr std::chrono::hours kLongest{24 * 3650};

c10d::WorkResult resultOf(const std::optional<Error>& error) {
  if (!error) return c10d::WorkResult::SUCCESS;
  if (error->code() == ErrorCode::kTimeout) return c10d::WorkResult::TIMEOUT;
  return c10d::WorkResult::COMM_ERROR;
}

}  // namespace

TacoWork::TacoWork(WorkFacts facts, CompletionHook hook)
    : c10d::Work(facts.rank, facts.type, facts.title, facts.inputs),
      title_(facts.title),
      group_(facts.group),
      outputs_(std::move(facts.outputs)),
      sequence_(facts.sequence),
      hook_(std::move(hook)) {}

void TacoWork::settle(const std::optional<Error>& error, int sourceRank) {
  FuturePtr values;
  FuturePtr outcome;
  {
    std::lock_guard<std::mutex> lock(stateMutex_);
    if (settled_) return;
    settled_ = true;
    error_ = error;
    sourceRank_ = sourceRank;
    finished_ = Clock::now();
    values = values_;
    outcome = outcome_;
  }
  // Foreign code below: whatever it throws must not keep the waiters waiting.
  try {
    completeFutures(values, outcome);
    if (hook_) {
      hook_(std::make_shared<c10d::WorkInfo>(opType_, sequence_, started_, finished_,
                                             finished_ - started_));
    }
  } catch (...) {
    log(LogLevel::kWarn, str("a callback of ", title(), " threw: ", currentError().what()));
  }
  finish(error ? torchException(title(), *error) : nullptr);

  std::vector<Listener> listeners;
  {
    std::lock_guard<std::mutex> lock(stateMutex_);
    listenersCalled_ = true;
    listeners.swap(listeners_);
  }
  for (const Listener& listener : listeners) listener(error);
}

void TacoWork::completeFutures(const FuturePtr& values, const FuturePtr& outcome) {
  if (!values && !outcome) return;
  std::optional<at::ThreadLocalStateGuard> asAsker;
  if (askersState_) asAsker.emplace(*askersState_);
  if (outcome) outcome->markCompleted(c10::IValue(static_cast<int64_t>(resultOf(error_))));
  if (!values) return;
  if (error_) {
    values->setError(torchException(title(), *error_));
  } else {
    values->markCompleted(c10::IValue(outputs_));
  }
}

void TacoWork::onSettled(Listener listener) {
  {
    std::lock_guard<std::mutex> lock(stateMutex_);
    if (!listenersCalled_) {
      listeners_.push_back(std::move(listener));
      return;
    }
  }
  listener(error_);  // settled: error_ does not change any more
}

bool TacoWork::wait(std::chrono::milliseconds timeout) {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!completed_ && NestingScope::of(group_) != nullptr) {
      throw c10::DistBackendError(
          str(title(), ": a callback waits for an operation of its own group that was called "
              "before the callback ran; it can only run after the callback, so this would wait for "
              "ever. Wait outside callbacks, or call the operation in the callback"),
          nullptr);
    }
    const auto done = [this] { return completed_; };
    if (timeout <= kNoTimeout || timeout > kLongest) {
      cv_.wait(lock, done);
    } else if (!cv_.wait_for(lock, timeout, done)) {
      throw c10::DistBackendError(
          str(title(), " ran into the timeout of ", timeout.count(),
              " ms given to wait(): the operation is still in progress, a rank may not have "
              "called it yet; wait() may be called again"),
          nullptr);
    }
  }
  synchronize();
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

void TacoWork::synchronize() {
  // The registry holds works for functional collectives traced into graphs; waiting ends that.
  if (c10d::allow_inflight_collective_as_graph_input()) {
    c10d::unregister_work(c10::intrusive_ptr<c10d::Work>::unsafe_reclaim_from_nonowning(this));
  }
}

int TacoWork::sourceRank() const {
  std::lock_guard<std::mutex> lock(stateMutex_);
  if (opType_ != c10d::OpType::RECV && opType_ != c10d::OpType::RECVANYSOURCE) {
    throw c10::ValueError(str(title(), ": only a receive has a source rank"), nullptr);
  }
  if (sourceRank_ < 0) {
    throw c10::ValueError(
        str(title(), ": the source rank is known once the receive has completed; call wait()"),
        nullptr);
  }
  return sourceRank_;
}

std::vector<at::Tensor> TacoWork::result() {
  if (!isCompleted()) {
    throw c10::ValueError(
        str(title(), ": the result is there once the operation has completed; call wait()"),
        nullptr);
  }
  return outputs_;
}

TacoWork::FuturePtr TacoWork::futureOf(FuturePtr TacoWork::*member, c10::TypePtr type) {
  FuturePtr future;
  bool settled = false;
  {
    std::lock_guard<std::mutex> lock(stateMutex_);
    if (this->*member) return this->*member;
    future = c10::make_intrusive<c10::ivalue::Future>(std::move(type));
    this->*member = future;
    settled = settled_;
    if (!settled_ && !askersState_) askersState_.emplace();
  }
  if (settled) {
    // Nobody else has seen it yet, so no callback runs.
    completeFutures(member == &TacoWork::values_ ? future : nullptr,
                    member == &TacoWork::outcome_ ? future : nullptr);
  }
  return future;
}

c10::intrusive_ptr<c10::ivalue::Future> TacoWork::getFuture() {
  return futureOf(&TacoWork::values_, c10::ListType::ofTensors());
}

c10::intrusive_ptr<c10::ivalue::Future> TacoWork::getFutureResult() {
  return futureOf(&TacoWork::outcome_, c10::IntType::get());
}

uint64_t TacoWork::getSequencenumber() const { return sequence_; }

float TacoWork::getDuration() const {
  std::lock_guard<std::mutex> lock(stateMutex_);
  if (!settled_) {
    throw c10::ValueError(str(title(), ": the duration is known once it has completed"), nullptr);
  }
  return std::chrono::duration<float, std::milli>(finished_ - started_).count();
}

std::string TacoWork::title() const { return title_ == nullptr ? "taco:coalesced" : title_; }

void JoinedWork::add(TacoWork& part) {
  if (!part.isPointToPoint()) hasCollectives_ = true;
  {
    std::lock_guard<std::mutex> lock(count_->mutex);
    ++count_->pending;
  }
  part.onSettled([count = count_](const std::optional<Error>& error) { partDone(count, error); });
}

void JoinedWork::close(c10::intrusive_ptr<TacoWork> work) {
  {
    std::lock_guard<std::mutex> lock(count_->mutex);
    count_->work = std::move(work);
  }
  partDone(count_, std::nullopt);
}

void JoinedWork::partDone(const std::shared_ptr<Count>& count, const std::optional<Error>& error) {
  c10::intrusive_ptr<TacoWork> work;
  std::optional<Error> first;
  {
    std::lock_guard<std::mutex> lock(count->mutex);
    if (error && !count->error) count->error = error;
    if (--count->pending > 0) return;
    work = std::move(count->work);
    first = count->error;
  }
  work->settle(first);
}

}  // namespace taco
