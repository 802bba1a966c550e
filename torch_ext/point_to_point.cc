// Sends and receives, and the barrier that names who is missing.
#include <algorithm>

#include "csrc/base/format.h"
#include "torch_ext/errors.h"
#include "torch_ext/process_group_taco.h"
#include "torch_ext/tensors.h"

namespace taco {
namespace {

using Access = Staged::Access;

constexpr int kAnySource = -1;
// How much longer than rank 0 the others wait for its verdict, so that they hear who is missing.
constexpr Millis kVerdictGrace{2000};
constexpr Millis kLookOnly{1};
constexpr const char* kPassed = "passed";

const at::Tensor& onlyTensor(const char* operation, const std::vector<at::Tensor>& tensors) {
  if (tensors.size() != 1) {
    refuse(operation, str("the tensor list has ", tensors.size(), " tensors where 1 is needed"));
  }
  requireDenseCpu(operation, "the tensor", tensors[0]);
  return tensors[0];
}

std::string joined(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += str(text.empty() ? "" : ", ", rank);
  return text;
}

[[noreturn]] void fail(const std::string& message) {
  throw c10::DistBackendError(message, nullptr);
}

std::optional<std::string> valueBy(KeyValueStore& store, const std::string& key,
                                   const Deadline& deadline) {
  try {
    return store.get(key, deadline);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
    return std::nullopt;
  }
}

}  // namespace

c10::intrusive_ptr<c10d::Work> ProcessGroupTaco::send(std::vector<at::Tensor>& tensors,
                                                      int destination, int tag) {
  requireUsable();
  const at::Tensor& tensor = onlyTensor("send", tensors);
  requireRank("send", "the destination", destination);
  // The engine may read the memory later, so a strided tensor is packed now, on this thread.
  auto staged = std::make_shared<Staged>("send", "the tensor", tensor, Access::kRead);
  staged->load();
  auto work = newWork({c10d::OpType::SEND, "taco:send", c10d::kUnsetTimeout, true, tensors, {}});
  countPending(*work);
  joinCoalescing(*work);
  start(work, "taco:send", nullptr, [&] {
    return communicator_->send(staged->constBuffer(), destination, tag, c10d::kUnsetTimeout,
                               staged);
  });
  return work;
}

c10::intrusive_ptr<c10d::Work> ProcessGroupTaco::receiveFrom(std::vector<at::Tensor>& tensors,
                                                             int source, int tag) {
  requireUsable();
  const at::Tensor& tensor = onlyTensor("recv", tensors);
  auto staged = std::make_shared<Staged>("recv", "the tensor", tensor, Access::kWrite);
  const bool any = source == kAnySource;
  const char* title = any ? "taco:recvAnySource" : "taco:recv";
  auto work = newWork({any ? c10d::OpType::RECVANYSOURCE : c10d::OpType::RECV, title,
                       c10d::kUnsetTimeout, true, tensors, tensors});
  countPending(*work);
  joinCoalescing(*work);
  start(work, title, staged, [&] {
    return communicator_->receive(staged->buffer(), source, tag, c10d::kUnsetTimeout, staged);
  });
  return work;
}

void ProcessGroupTaco::start(const c10::intrusive_ptr<TacoWork>& work, const char* title,
                             std::shared_ptr<Staged> received,
                             const std::function<TicketPtr()>& issue) {
  const TicketPtr ticket = translated(title, [&] {
    try {
      return issue();
    } catch (...) {
      const Error error = currentError();
      work->settle(error);  // a joined work must not wait for it
      throw error;
    }
  });
  ticket->onDone([work, received = std::move(received)](const Ticket& done) {
    const std::optional<Error> error = done.error();
    if (!error && received) received->store();
    work->settle(error, done.sourceRank());
  });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupTaco::recv(std::vector<at::Tensor>& tensors, int source,
                                                      int tag) {
  requireRank("recv", "the source", source);
  return receiveFrom(tensors, source, tag);
}

c10::intrusive_ptr<c10d::Work> ProcessGroupTaco::recvAnysource(std::vector<at::Tensor>& tensors,
                                                               int tag) {
  return receiveFrom(tensors, kAnySource, tag);
}

// Through the store and not through the links, so that it works when the group no longer does:
// everybody writes "here", rank 0 reads all of them and writes the verdict, the others read that.
void ProcessGroupTaco::monitoredBarrier(const c10d::BarrierOptions& opts, bool waitAllRanks) {
  requireUsable();
  const Millis timeout =
      opts.timeout == c10d::kUnsetTimeout ? Millis(options_->timeout) : Millis(opts.timeout);
  const std::string round = str("monitored_barrier/", barriers_++, "/");
  const std::string verdictKey = round + "verdict";
  translated("taco:monitored_barrier", [&] {
    if (rank_ != 0) {
      store_->set(round + std::to_string(rank_), "here");
      const std::string reached =
          str("Rank ", rank_, " successfully reached monitoredBarrier, but received errors while "
              "waiting for send/recv from rank 0");
      // Rank 0's own timeout begins when it comes, which may be later than here.
      const bool rankZeroCame =
          valueBy(*store_, round + "0", Deadline::after(std::max(timeout, kLookOnly))).has_value();
      const auto verdict =
          rankZeroCame ? valueBy(*store_, verdictKey, Deadline::after(timeout + kVerdictGrace))
                       : std::nullopt;
      if (!verdict) {
        fail(str(reached, ": rank 0 did not ", rankZeroCame ? "answer" : "come", " within ",
                 timeout.count(), " ms"));
      }
      if (*verdict != kPassed) fail(str(reached, ": ", *verdict));
      return;
    }
    store_->set(round + "0", "here");
    const Deadline deadline = Deadline::after(std::max(timeout, kLookOnly));
    std::vector<int> missing;
    for (int rank = 1; rank < size_; ++rank) {
      // After the deadline one look is enough to know who else is missing.
      const bool late = deadline.expired();
      const std::string key = round + std::to_string(rank);
      if (!valueBy(*store_, key, late ? Deadline::after(kLookOnly) : deadline)) {
        missing.push_back(rank);
      }
    }
    if (missing.empty()) {
      store_->set(verdictKey, kPassed);
      return;
    }
    const std::string who = waitAllRanks && missing.size() > 1
                                ? str("Ranks ", joined(missing))
                                : str("Rank ", missing[0]);
    std::string message =
        str(who, " failed to pass monitoredBarrier in ", timeout.count(), " ms");
    if (timeout.count() <= 0) message += "; Rank 0 timed out in monitoredBarrier at once";
    if (!waitAllRanks && missing.size() > 1) message += str(" (missing: ", joined(missing), ")");
    store_->set(verdictKey, message);
    fail(str("[Rank 0]: ", message));
  });
}

}  // namespace taco
