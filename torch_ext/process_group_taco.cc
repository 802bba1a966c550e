#include "torch_ext/process_group_taco.h"

#include <unistd.h>

#include "csrc/base/format.h"
#include "csrc/base/log.h"
#include "csrc/base/process_generation.h"
#include "torch_ext/errors.h"
#include "torch_ext/nesting.h"
#include "torch_ext/store_adapter.h"
#include "torch_ext/tensors.h"

namespace taco {
namespace {

// Every communicator of this process that may still run, for shutdownAll().
struct Living {
  std::mutex mutex;  // guards both below
  std::vector<std::weak_ptr<Communicator>> communicators;
  int64_t process = 0;
};
// Never destroyed: groups may outlive static destructors.
Living& living() {
  static auto* all = new Living;
  return *all;
}

void remember(const std::shared_ptr<Communicator>& communicator) {
  Living& all = living();
  std::lock_guard<std::mutex> lock(all.mutex);
  if (all.process != ::getpid()) all.communicators.clear();  // a parent's, before a fork
  all.process = ::getpid();
  std::erase_if(all.communicators, [](const auto& one) { return one.expired(); });
  all.communicators.push_back(communicator);
}

std::string groupName(const ProcessGroupTaco::Options& options) {
  return options.group_name.empty() ? "default" : options.group_name;
}

}  // namespace

ProcessGroupTaco::ProcessGroupTaco(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                   c10::intrusive_ptr<Options> options)
    : Backend(rank, size), options_(std::move(options)), ownerProcess_(::getpid()),
      ownerGeneration_(processGeneration()) {
  init();
  const std::string what = str("taco: making the group '", groupName(*options_), "'");
  CommunicatorConfig config;
  config.deadline = Deadline::after(options_->timeout);  // to connect to the store may take a while
  const auto adapter =
      translated(what, [&] { return std::make_shared<StoreAdapter>(store, rank, options_->timeout); });
  store_ = adapter;
  config.rank = rank;
  config.size = size;
  config.store = store_;
  config.environment = processEnvironment();
  for (const auto& [name, value] : options_->settings) config.environment[name] = value;
  config.timeout = options_->timeout;
  config.groupName = groupName(*options_);
  for (const auto global : options_->global_ranks_in_group) {
    config.globalRanks.push_back(static_cast<int>(global));
  }
  translated(what, [&] {
    try {
      communicator_ = std::make_shared<Communicator>(config);
    } catch (...) {
      const Error why = currentError();
      try {
        adapter->forgetGroup();
      } catch (const Error& error) {  // the store is gone as well; `why` says enough
        log(LogLevel::kInfo, error.what());
      }
      throw why;
    }
  });
  remember(communicator_);
  identities_.emplace([communicator = communicator_.get()](uint64_t storage) {
    communicator->forgetResiduals(storage);
  });
}

ProcessGroupTaco::~ProcessGroupTaco() {
  if (!isOwners()) {
    // A forked child: saying goodbye on the parent's connections would end the parent's group.
    new std::shared_ptr<Communicator>(std::move(communicator_));
    return;
  }
  try {
    shutdown();
  } catch (...) {
    log(LogLevel::kWarn, str("shutting down the group '", groupName(*options_),
                             "' failed: ", currentError().what()));
  }
}

c10::intrusive_ptr<c10d::Backend::Options> ProcessGroupTaco::getBackendOptions() {
  return options_;
}

bool ProcessGroupTaco::isOwners() const { return processGeneration() == ownerGeneration_; }

void ProcessGroupTaco::requireUsable() const {
  if (!isOwners()) {
    throw c10::DistBackendError(
        str("taco: the group '", groupName(*options_), "' was made in process ", ownerProcess_,
            " and cannot be used in process ", ::getpid(),
            ", which was forked from it; call init_process_group() in the new process"),
        nullptr);
  }
}

void ProcessGroupTaco::requireRank(const char* operation, const char* argument,
                                   int64_t rank) const {
  if (rank >= 0 && rank < size_) return;
  refuse(operation, str(argument, " is ", rank, ", but the ranks of this group are 0 to ",
                        size_ - 1));
}

c10::intrusive_ptr<TacoWork> ProcessGroupTaco::newWork(const Launch& operation) {
  const bool pointToPoint = c10d::isP2POp(operation.type);
  const uint64_t sequence = pointToPoint ? sequence_.load() : ++sequence_;
  return c10::make_intrusive<TacoWork>(
      WorkFacts{rank_, operation.type, operation.title, operation.inputs, operation.outputs,
                sequence, pointToPoint ? nullptr : communicator_.get()},
      onCompletionHook_);
}

ProcessGroupTaco::WorkPtr ProcessGroupTaco::launch(Launch operation, Body body) {
  requireUsable();
  auto work = newWork(operation);
  countPending(*work);
  joinCoalescing(*work);

  const void* group = communicator_.get();
  if (Nesting* outer = NestingScope::of(group)) {
    runNested(*outer, body, *work);
    return work;
  }
  auto run = [work, group, body = std::move(body)](Collectives& collectives) {
    try {
      body(collectives);
    } catch (...) {
      throw currentError();
    }
    // Settled while the lane is still this operation's: when a later operation is done, this one
    // is seen to be done as well, and its callbacks may communicate (nesting.h).
    Nesting inner{group, &collectives, std::nullopt};
    NestingScope scope(&inner);
    work->settle(std::nullopt);
    if (inner.failure) throw *inner.failure;
  };
  translated(operation.title, [&] {
    try {
      if (operation.async) {
        const TicketPtr ticket =
            communicator_->submit(operation.timeout, std::move(run), operation.title);
        // Does nothing after success: the body has settled it.
        ticket->onDone([work](const Ticket& done) { work->settle(done.error()); });
      } else if (const auto why = communicator_->run(operation.timeout, run, operation.title)) {
        work->settle(*why);
      }
    } catch (...) {
      const Error error = currentError();
      work->settle(error);  // a joined work must not wait for it
      throw error;
    }
  });
  return work;
}

void ProcessGroupTaco::runNested(Nesting& outer, const Body& body, TacoWork& work) {
  std::optional<Error> error;
  try {
    if (outer.failure) throw *outer.failure;
    body(*outer.collectives);
  } catch (...) {
    error = currentError();
    if (!error->isCallersFault()) outer.failure = error;
  }
  work.settle(error);
}

void ProcessGroupTaco::startCoalescing() {
  std::lock_guard<std::mutex> lock(coalescingMutex_);
  coalescingThread_ = std::this_thread::get_id();
  coalescing_.emplace();
}

void ProcessGroupTaco::joinCoalescing(TacoWork& work) {
  std::lock_guard<std::mutex> lock(coalescingMutex_);
  if (coalescing_ && coalescingThread_ == std::this_thread::get_id()) coalescing_->add(work);
}

c10::intrusive_ptr<c10d::Work> ProcessGroupTaco::endCoalescing() {
  std::optional<JoinedWork> joined;
  {
    std::lock_guard<std::mutex> lock(coalescingMutex_);
    if (!coalescing_ || coalescingThread_ != std::this_thread::get_id()) {
      refuse("coalescing", "endCoalescing() without a startCoalescing() on the same thread");
    }
    joined.swap(coalescing_);
  }
  auto work = c10::make_intrusive<TacoWork>(
      WorkFacts{rank_, c10d::OpType::COALESCED, nullptr, {}, {}, sequence_.load(),
                joined->hasCollectives() ? communicator_.get() : nullptr});
  joined->close(work);
  return work;
}

void ProcessGroupTaco::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  communicator_->setTimeout(timeout);
}

c10d::ErrorType ProcessGroupTaco::getError() {
  const std::optional<Error> failure = communicator_->failure();
  if (!failure) return c10d::ErrorType::SUCCESS;
  if (failure->code() == ErrorCode::kTimeout) return c10d::ErrorType::TIMEOUT;
  if (failure->code() == ErrorCode::kPeerFailed) return c10d::ErrorType::REMOTE_ERROR;
  return c10d::ErrorType::COMM_ERROR;
}

void ProcessGroupTaco::registerOnCompletionHook(
    std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) {
  if (onCompletionHook_) refuse("completion hook", "this group has one already");
  if (sequence_.load() > 0) {
    refuse("completion hook", "it must be registered before the group's first operation");
  }
  onCompletionHook_ = std::move(hook);
}

void ProcessGroupTaco::countPending(TacoWork& work) {
  if (!onCompletionHook_) return;
  {
    std::lock_guard<std::mutex> lock(pending_->mutex);
    ++pending_->works;
  }
  work.onSettled([pending = pending_](const std::optional<Error>&) {
    std::lock_guard<std::mutex> lock(pending->mutex);
    if (--pending->works == 0) pending->none.notify_all();
  });
}

void ProcessGroupTaco::waitForPendingWorks() {
  std::unique_lock<std::mutex> lock(pending_->mutex);
  pending_->none.wait(lock, [this] { return pending_->works == 0; });
}

void ProcessGroupTaco::shutdown() {
  if (!isOwners() || closed_.exchange(true)) return;
  communicator_->shutdown();
}

void ProcessGroupTaco::abort() {
  if (!isOwners()) return;
  closed_.store(true);
  communicator_->abort("abort() was called on this group");
}

void ProcessGroupTaco::shutdownAll(Millis patience) {
  std::vector<std::weak_ptr<Communicator>> all;
  {
    std::lock_guard<std::mutex> lock(living().mutex);
    if (living().process != ::getpid()) return;
    all = living().communicators;
  }
  for (const auto& one : all) {
    const std::shared_ptr<Communicator> communicator = one.lock();
    if (!communicator) continue;
    try {
      if (communicator->timeout() > patience) communicator->setTimeout(patience);
      communicator->shutdown();
    } catch (...) {
      log(LogLevel::kWarn,
          str("shutting a group down at exit failed: ", currentError().what()));
    }
  }
}

}  // namespace taco
