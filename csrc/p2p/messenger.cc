#include "csrc/p2p/messenger.h"

#include <algorithm>
#include <cstring>

#include "csrc/base/fault_point.h"
#include "csrc/base/format.h"

namespace taco {
namespace {

// How long an operation waits before it makes sure that the death of its peer would be noticed:
// that may cost a connection.
constexpr Millis kWatchAfter{100};

void copyBytes(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

Messenger::Messenger(Transport& transport, std::string group)
    : transport_(transport),
      group_(std::move(group)),
      rank_(transport.rank()),
      peers_(static_cast<size_t>(transport.size())) {
  transport_.setReceiver(this);
}

void Messenger::Finished::tell() {
  operation->keepAlive.reset();
  if (why) {
    operation->ticket->fail(*why);
  } else {
    operation->ticket->complete();
  }
}

void Messenger::begin(const std::shared_ptr<Operation>& operation) {
  pending_.emplace(operation.get(), operation);
  if (!operation->deadline.isNever()) {
    deadlines_.emplace(operation->deadline.at(), operation.get());
  }
}

// By value: it leaves the list that the caller may have found it in.
void Messenger::finish(std::shared_ptr<Operation> operation, std::optional<Error> why) {
  if (operation->finished) return;
  operation->finished = true;
  pending_.erase(operation.get());
  if (!operation->deadline.isNever()) {
    deadlines_.erase({operation->deadline.at(), operation.get()});
  }
  if (why) {
    const char* verb = why->code() == ErrorCode::kTimeout ? "' " : "' failed: ";
    why = Error(why->code(), str(operation->describe(), " in group '", group_, verb, why->what()),
                why->rank());
  }
  finished_.push_back({std::move(operation), std::move(why)});
}

bool Messenger::isAlone() const {
  for (int peer = 0; peer < transport_.size(); ++peer) {
    if (peer != rank_ && !peers_[peer].lost) return false;
  }
  return transport_.size() > 1;
}

bool Messenger::hasSendsUnderWay() const {
  return std::any_of(peers_.begin(), peers_.end(),
                     [](const Peer& peer) { return !peer.outbound.empty(); });
}

void Messenger::send(const SendPtr& send) {
  faultPoint("p2p.send");
  begin(send);
  if (failure_) return finish(send, failure_);
  if (send->peer == rank_) return sendToSelf(send);
  Peer& peer = peers_[send->peer];
  if (peer.lost) return finish(send, peer.lost);
  const size_t cost = send->bytes + kMessageOverhead;
  FrameHeader header;
  header.p2p.tag = send->tag;
  header.p2p.size = send->bytes;
  if (send->bytes <= kEagerBytes && peer.creditUsed + cost <= kCreditBytes) {
    peer.creditUsed += cost;
    header.kind = FrameKind::kEager;
    header.bytes = send->bytes;
    transport_.sendCopy(send->peer, header, send->data);
    return finish(send, std::nullopt);
  }
  send->id = nextId_++;
  peer.outbound.emplace(send->id, send);
  header.kind = FrameKind::kRequestToSend;
  header.p2p.id = send->id;
  transport_.sendCopy(send->peer, header, nullptr);
  faultPoint("p2p.requested");
}

void Messenger::sendToSelf(const SendPtr& send) {
  auto message = std::make_shared<UnexpectedMessage>();
  message->kind = UnexpectedMessage::Kind::kLocal;
  message->source = rank_;
  message->tag = send->tag;
  message->bytes = send->bytes;
  message->local = send;
  if (const ReceivePtr receive = matcher_.takePosted(rank_, send->tag)) {
    return take(receive, message);
  }
  matcher_.add(message);
  if (send->bytes > kEagerBytes) return;
  message->data = std::make_unique_for_overwrite<char[]>(send->bytes);
  copyBytes(message->data.get(), send->data, send->bytes);
  message->local = nullptr;
  finish(send, std::nullopt);
}

void Messenger::receive(const ReceivePtr& receive) {
  faultPoint("p2p.receive");
  begin(receive);
  if (failure_) return finish(receive, failure_);
  if (const UnexpectedPtr message = matcher_.takeUnexpected(receive->peer, receive->tag)) {
    return take(receive, message);
  }
  if (receive->peer == kAnySource) {
    if (isAlone()) {
      return finish(receive, Error(ErrorCode::kPeerFailed, "every other rank has left or died"));
    }
  } else if (peers_[receive->peer].lost) {
    return finish(receive, peers_[receive->peer].lost);
  }
  matcher_.post(receive);
}

// A receive meets a message that came before it.
void Messenger::take(const ReceivePtr& receive, const UnexpectedPtr& message) {
  receive->source = message->source;
  receive->ticket->setSourceRank(message->source);
  const bool fits = message->bytes == receive->bytes;
  const Error mismatch =
      wrongSize(message->source, rank_, receive->tag, message->bytes, receive->bytes);
  switch (message->kind) {
    case UnexpectedMessage::Kind::kLocal: {
      const char* from = message->local ? message->local->data : message->data.get();
      if (fits) copyBytes(receive->data, from, message->bytes);
      const auto outcome = fits ? std::nullopt : std::optional<Error>(mismatch);
      if (message->local) finish(message->local, outcome);
      finish(receive, outcome);
      return;
    }
    case UnexpectedMessage::Kind::kEager:
      if (!message->arrived && fits) {
        receive->stage = ReceiveOperation::Stage::kEager;
        message->taker = receive;
        return;
      }
      if (fits) {
        copyBytes(receive->data, message->data.get(), message->bytes);
        finish(receive, std::nullopt);
      } else {
        message->taker = receive;  // finished: what still arrives is dropped
        finish(receive, mismatch);
      }
      if (message->arrived) consumed(message->source, message->bytes);
      return;
    case UnexpectedMessage::Kind::kRendezvous:
      accept(receive, message->source, message->id, message->bytes);
      return;
  }
}

// Answers a request to send that `receive` has been matched with.
void Messenger::accept(const ReceivePtr& receive, int source, uint64_t id, size_t bytes) {
  receive->source = source;
  receive->ticket->setSourceRank(source);
  if (bytes != receive->bytes) {
    control(source, FrameKind::kClearToSend, receive->tag, id, receive->bytes, Answer::kWrongSize);
    return finish(receive, wrongSize(source, rank_, receive->tag, bytes, receive->bytes));
  }
  const auto [at, isNew] = peers_[source].inbound.try_emplace(id);
  if (!isNew) {  // one of two would go on in the memory of the other
    return finish(receive,
                  Error(ErrorCode::kPeerFailed,
                        str("rank ", source, " asked to send two messages under one number"),
                        source));
  }
  at->second.receive = receive;
  receive->stage = ReceiveOperation::Stage::kRendezvous;
  receive->id = id;
  control(source, FrameKind::kClearToSend, receive->tag, id, receive->bytes);
  faultPoint("p2p.cleared");
}

Error Messenger::wrongSize(int source, int destination, int64_t tag, size_t sent,
                           size_t received) const {
  return Error(ErrorCode::kMismatch,
               str("rank ", source, " sends ", sent, " bytes with tag ", tag, ", but rank ",
                   destination, " receives ", received, " bytes; both sides must agree"),
               source == rank_ ? destination : source);
}

void Messenger::tend() {
  const auto now = Clock::now();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const auto operation = pending_.at(deadlines_.begin()->second);
    giveUp(operation, Error(ErrorCode::kTimeout,
                            str("Timed out after ", operation->deadline.budget().count(),
                                " ms on rank ", rank_, " waiting for ", operation->waitsFor()),
                            operation->peer));
  }
  if (now < nextWatchAt_) return;
  nextWatchAt_ = now + kWatchAfter / 2;
  for (const auto& [key, operation] : pending_) {
    if (now - operation->begun < kWatchAfter) continue;
    const int first = operation->peer == kAnySource ? 0 : operation->peer;
    const int last = operation->peer == kAnySource ? transport_.size() - 1 : operation->peer;
    for (int peer = first; peer <= last; ++peer) {
      if (peer == rank_ || peers_[peer].watched) continue;
      peers_[peer].watched = true;
      transport_.watch(peer);
    }
  }
}

std::chrono::nanoseconds Messenger::untilNextDeadline(std::chrono::nanoseconds most) const {
  if (deadlines_.empty()) return most;
  return std::clamp<std::chrono::nanoseconds>(deadlines_.begin()->first - Clock::now(),
                                              std::chrono::nanoseconds(0), most);
}

void Messenger::giveUp(const std::shared_ptr<Operation>& operation, const Error& why) {
  if (auto send = std::dynamic_pointer_cast<SendOperation>(operation)) {
    giveUpSend(send, why);
  } else {
    giveUpReceive(std::static_pointer_cast<ReceiveOperation>(operation), why);
  }
}

void Messenger::giveUpSend(const SendPtr& send, const Error& why) {
  if (send->peer == rank_) {
    matcher_.removeUnexpected([&](const UnexpectedMessage& it) { return it.local == send; });
  } else {
    peers_[send->peer].outbound.erase(send->id);
    if (send->inFlight) transport_.detachPayload(send->peer, send->data, send->bytes);
    control(send->peer, FrameKind::kWithdraw, send->tag, send->id, send->bytes);
  }
  finish(send, why);
}

void Messenger::giveUpReceive(const ReceivePtr& receive, const Error& why) {
  if (receive->stage == ReceiveOperation::Stage::kPosted) {
    matcher_.remove(receive);
  } else {
    Peer& peer = peers_[receive->source];
    if (peer.arrivingReceive == receive) {
      transport_.discardPayload(receive->source);
      peer.arrivingReceive = nullptr;
    }
    if (receive->stage == ReceiveOperation::Stage::kRendezvous) {
      control(receive->source, FrameKind::kClearToSend, receive->tag, receive->id, receive->bytes,
              Answer::kGaveUp);
    }
  }
  finish(receive, why);
}

void Messenger::fail(const Error& why) {
  if (failure_) return;
  failure_ = why;
  while (!pending_.empty()) finish(pending_.begin()->second, why);
  for (Peer& peer : peers_) {
    peer.outbound.clear();
    peer.inbound.clear();
    peer.arrivingReceive = nullptr;
    peer.arrivingMessage = nullptr;
  }
  matcher_ = Matcher();
}

}  // namespace taco
