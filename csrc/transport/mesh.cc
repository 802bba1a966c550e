#include "csrc/transport/mesh.h"

#include <thread>
#include <utility>

#include "csrc/base/format.h"

namespace taco {
namespace {

// How long a wait goes on before it makes sure that the death of its peer would be noticed: that
// may cost a connection, which most waits are too short to need.
constexpr Millis kWatchAfter{100};

// The longest sleep without a look at the abort signal.
constexpr Millis kSlice{20};

}  // namespace

Mesh::Mesh(std::unique_ptr<Transport> transport, const AbortSignal& abort)
    : transport_(std::move(transport)),
      abort_(abort),
      posted_(static_cast<size_t>(transport_->size())),
      lost_(static_cast<size_t>(transport_->size())) {
  transport_->setReceiver(this);
}

Mesh::~Mesh() = default;

void Mesh::throwIfFailed() const {
  if (failure_) throw *failure_;
}

void Mesh::send(int peer, const Call& call, uint32_t step, const void* data, size_t bytes,
                Transfer& transfer) {
  std::lock_guard<std::mutex> lock(mutex_);
  throwIfFailed();
  transfer = Transfer{false, peer};
  FrameHeader header;
  header.kind = FrameKind::kCollective;
  header.step = step;
  header.bytes = bytes;
  header.call = call;
  transport_->send(peer, header, data, [&transfer] { transfer.done = true; });
}

void Mesh::receive(int peer, const Call& call, uint32_t step, void* data, size_t bytes,
                   Transfer& transfer) {
  std::lock_guard<std::mutex> lock(mutex_);
  throwIfFailed();
  transfer = Transfer{false, peer};
  posted_[peer].push_back({call, step, data, bytes, &transfer});
  transport_->resume(peer);
}

void Mesh::wait(const Transfer& transfer, const Call& call, const Deadline& deadline,
                LongWait* longWait) {
  const auto began = Clock::now();
  auto askAt = began + LongWait::kAskAfter;
  bool watching = false;
  for (;;) {
    // A mutex is not fair, and this loop would take it again at once.
    while (stopWanted_.load(std::memory_order_acquire)) std::this_thread::yield();
    std::lock_guard<std::mutex> lock(mutex_);
    throwIfFailed();
    if (trouble_) failAndThrow(*trouble_);
    if (transfer.done) return;
    if (const Error* never = whyNever(transfer)) {
      failAndThrow(Error(never->code(),
                         str(never->what(), ", while rank ", rank(), " was in ", call.describe()),
                         never->rank()));
    }
    if (abort_.raised()) failAndThrow(*abort_.reason());
    if (deadline.expired()) {
      bool receiving = false;
      for (const PostedReceive& posted : posted_[transfer.peer]) {
        receiving |= posted.transfer == &transfer;
      }
      failAndThrow(Error(ErrorCode::kTimeout,
                         str(call.describe(), " Timed out after ", deadline.budget().count(),
                             " ms on rank ", rank(), " waiting for rank ", transfer.peer,
                             receiving ? " to send its data" : " to take this rank's data"),
                         transfer.peer));
    }
    if (longWait != nullptr && Clock::now() >= askAt) {
      askAt = Clock::now() + LongWait::kAskAgain;
      try {
        longWait->waitingFor(transfer.peer);
      } catch (const Error& why) {
        failAndThrow(why);
      }
    }
    if (!watching && Clock::now() - began >= kWatchAfter) {
      watching = true;
      watchThoseWaitedFor();
      transport_->watch(transfer.peer);
    }
    transport_->progress(deadline.remaining(kSlice));
  }
}

void Mesh::poll() {
  std::lock_guard<std::mutex> lock(mutex_);
  throwIfFailed();
  transport_->progress(std::chrono::nanoseconds(0));
  if (trouble_) failAndThrow(*trouble_);
}

void Mesh::fail(const Error& why) {
  stopWanted_.store(true, std::memory_order_release);
  transport_->wake();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    failLocked(why);
  }
  stopWanted_.store(false, std::memory_order_release);
}

void Mesh::close(std::chrono::milliseconds maxWait) {
  std::lock_guard<std::mutex> lock(mutex_);
  transport_->close(maxWait);
}

void Mesh::failLocked(const Error& why) {
  if (failure_) return;
  failure_ = why;
  transport_->fail(why);
  for (auto& posted : posted_) posted.clear();
}

void Mesh::failAndThrow(const Error& why) {
  failLocked(why);
  throw *failure_;
}

void Mesh::watchThoseWaitedFor() {
  for (int peer = 0; peer < size(); ++peer) {
    if (!posted_[peer].empty()) transport_->watch(peer);
  }
}

// Why `transfer` will never be done; null if it may be. A receive fails with every peer that owes
// something, because collectives need all of them.
const Error* Mesh::whyNever(const Transfer& transfer) const {
  if (lost_[transfer.peer]) return &*lost_[transfer.peer];
  for (int peer = 0; peer < transport_->size(); ++peer) {
    if (lost_[peer] && !posted_[peer].empty()) return &*lost_[peer];
  }
  return nullptr;
}

std::string Mesh::disagreement(int peer, const FrameHeader& theirs,
                               const PostedReceive& ours) const {
  if (theirs.call != ours.call) {
    const std::string here = ours.call.describe();
    const std::string there = theirs.call.describe();
    return str("rank ", peer, " is in ", there, ", but this rank (", rank(), ") is in ", here,
               here == there ? ", with other sizes or another plan on some rank" : "");
  }
  return str("rank ", peer, " sends ", theirs.bytes, " bytes as step ", theirs.step, " of ",
             theirs.call.describe(), ", but this rank (", rank(), ") expects ", ours.bytes,
             " bytes as step ", ours.step);
}

Transport::Receiver::Landing Mesh::onHeader(int peer, const FrameHeader& header) {
  if (posted_[peer].empty() || trouble_) return {};
  const PostedReceive& first = posted_[peer].front();
  if (header.kind != FrameKind::kCollective || header.call != first.call ||
      header.step != first.step || header.bytes != first.bytes) {
    trouble_ = Error(ErrorCode::kMismatch, disagreement(peer, header, first), peer);
    return {};
  }
  return {true, first.data};
}

void Mesh::onArrived(int peer, const FrameHeader&) {
  posted_[peer].front().transfer->done = true;
  posted_[peer].pop_front();
}

void Mesh::onLost(int peer, const Error& why, Loss how) {
  lost_[peer] = why;
  // A failure ends every collective of the group, also one that waits for somebody else. Who left,
  // or died, may have done its part: that matters to those who wait for it, and they tell the rest.
  if (how == Loss::kFailed && !trouble_) trouble_ = why;
}

}  // namespace taco
