// The wire side of Messenger: which frames it writes, and what it does with those that arrive.

#include <algorithm>
#include <cstring>
#include <utility>

#include "csrc/base/fault_point.h"
#include "csrc/base/format.h"
#include "csrc/p2p/messenger.h"

namespace taco {

void Messenger::control(int peer, FrameKind kind, int64_t tag, uint64_t id, uint64_t size,
                        Answer answer) {
  FrameHeader header;
  header.kind = kind;
  header.p2p = {tag, id, size, static_cast<uint64_t>(answer)};
  transport_.sendCopy(peer, header, nullptr);
}

void Messenger::sendPiece(const SendPtr& send) {
  const size_t bytes = std::min(send->bytes - send->written, kPieceBytes);
  FrameHeader header;
  header.kind = FrameKind::kRendezvousData;
  header.bytes = bytes;
  header.p2p = {send->tag, send->id, send->bytes, send->written};
  send->inFlight = true;
  transport_.send(send->peer, header, send->data + send->written,
                  [this, send, bytes] { pieceSent(send, bytes); });
}

void Messenger::pieceSent(const SendPtr& send, size_t bytes) {
  faultPoint("p2p.piece_sent");
  if (send->finished) return;  // it went on from a copy
  send->inFlight = false;
  send->written += bytes;
  if (send->written < send->bytes) return sendPiece(send);
  peers_[send->peer].outbound.erase(send->id);
  finish(send, std::nullopt);
}

void Messenger::consumed(int source, size_t bytes) {
  Peer& peer = peers_[source];
  peer.creditOwed += bytes + kMessageOverhead;
  peer.buffered -= std::min(peer.buffered, bytes + kMessageOverhead);
  // Reported in large portions: a short exchange in one direction needs no stream in the other.
  if (peer.creditOwed < kCreditBytes / 8 || peer.lost) return;
  control(source, FrameKind::kCredit, 0, 0, std::exchange(peer.creditOwed, 0));
}

Transport::Receiver::Landing Messenger::onHeader(int peer, const FrameHeader& header) {
  switch (header.kind) {
    case FrameKind::kEager:
      return eagerHeader(peer, header);
    case FrameKind::kRendezvousData:
      return dataHeader(peer, header);
    case FrameKind::kRequestToSend:
    case FrameKind::kClearToSend:
    case FrameKind::kWithdraw:
    case FrameKind::kCredit:
    case FrameKind::kCollective:
    case FrameKind::kFail:
    case FrameKind::kGoodbye:
      break;
  }
  return {true, nullptr};
}

void Messenger::onArrived(int peer, const FrameHeader& header) {
  switch (header.kind) {
    case FrameKind::kEager:
      eagerArrived(peer, header);
      break;
    case FrameKind::kRendezvousData:
      dataArrived(peer, header);
      break;
    case FrameKind::kRequestToSend:
      requestArrived(peer, header);
      break;
    case FrameKind::kClearToSend:
      answerArrived(peer, header);
      break;
    case FrameKind::kWithdraw:
      withdrawArrived(peer, header);
      break;
    case FrameKind::kCredit:
      peers_[peer].creditUsed -= std::min<size_t>(peers_[peer].creditUsed, header.p2p.size);
      break;
    case FrameKind::kCollective:  // not of this lane: dropped
    case FrameKind::kFail:        // the transport's own
    case FrameKind::kGoodbye:
      break;
  }
}

Transport::Receiver::Landing Messenger::eagerHeader(int source, const FrameHeader& header) {
  Peer& peer = peers_[source];
  peer.arrivingReceive = nullptr;
  peer.arrivingMessage = nullptr;
  // The sender keeps to the same bounds: what goes beyond is to fill nobody's memory.
  if (header.bytes > kEagerBytes) return {.nonsense = true};
  peer.buffered += header.bytes + kMessageOverhead;
  if (peer.buffered > kCreditBytes) return {.nonsense = true};
  if (const ReceivePtr receive = matcher_.takePosted(source, header.p2p.tag)) {
    receive->source = source;
    receive->ticket->setSourceRank(source);
    if (receive->bytes != header.bytes) {
      finish(receive, wrongSize(source, rank_, receive->tag, header.bytes, receive->bytes));
      return {true, nullptr};
    }
    receive->stage = ReceiveOperation::Stage::kEager;
    peer.arrivingReceive = receive;
    return {true, receive->data};
  }
  auto message = std::make_shared<UnexpectedMessage>();
  message->source = source;
  message->tag = header.p2p.tag;
  message->bytes = header.bytes;
  message->data = std::make_unique_for_overwrite<char[]>(header.bytes);
  peer.arrivingMessage = message;
  matcher_.add(message);
  return {true, message->data.get()};
}

void Messenger::eagerArrived(int source, const FrameHeader& header) {
  Peer& peer = peers_[source];
  const ReceivePtr receive = std::exchange(peer.arrivingReceive, nullptr);
  const UnexpectedPtr message = std::exchange(peer.arrivingMessage, nullptr);
  if (message) {
    message->arrived = true;
    if (!message->taker) return;  // stays in the matcher; consumed when it is taken
    if (!message->taker->finished) {
      if (message->bytes > 0) {
        std::memcpy(message->taker->data, message->data.get(), message->bytes);
      }
      finish(message->taker, std::nullopt);
    }
  } else if (receive) {
    finish(receive, std::nullopt);
  }
  consumed(source, header.bytes);
}

void Messenger::requestArrived(int source, const FrameHeader& header) {
  const size_t bytes = header.p2p.size;
  if (const ReceivePtr receive = matcher_.takePosted(source, header.p2p.tag)) {
    return accept(receive, source, header.p2p.id, bytes);
  }
  auto message = std::make_shared<UnexpectedMessage>();
  message->kind = UnexpectedMessage::Kind::kRendezvous;
  message->source = source;
  message->tag = header.p2p.tag;
  message->bytes = bytes;
  message->id = header.p2p.id;
  matcher_.add(message);
}

void Messenger::answerArrived(int destination, const FrameHeader& header) {
  auto& outbound = peers_[destination].outbound;
  const auto at = outbound.find(header.p2p.id);
  if (at == outbound.end()) return;  // given up meanwhile
  const SendPtr send = at->second;
  const auto answer = static_cast<Answer>(header.p2p.extra);
  if (answer != Answer::kGaveUp && (send->inFlight || send->written > 0)) {
    return giveUpSend(send, Error(ErrorCode::kPeerFailed,
                                  str("rank ", destination, " answered its request to send twice"),
                                  destination));
  }
  switch (answer) {
    case Answer::kGo:
      return sendPiece(send);
    case Answer::kWrongSize:
      outbound.erase(at);
      return finish(send, wrongSize(rank_, destination, send->tag, send->bytes, header.p2p.size));
    case Answer::kGaveUp:
      return giveUpSend(send, Error(ErrorCode::kPeerFailed,
                                    str("rank ", destination,
                                        " gave up receiving it in the middle (timeout there)"),
                                    destination));
  }
}

Transport::Receiver::Landing Messenger::dataHeader(int source, const FrameHeader& header) {
  Peer& peer = peers_[source];
  peer.arrivingReceive = nullptr;
  peer.arrivingMessage = nullptr;
  const auto at = peer.inbound.find(header.p2p.id);
  if (at == peer.inbound.end() || at->second.receive->finished) return {true, nullptr};
  const ReceivePtr& receive = at->second.receive;
  if (header.p2p.extra != at->second.arrived ||
      header.bytes > receive->bytes - at->second.arrived) {
    finish(receive, Error(ErrorCode::kPeerFailed,
                          str("rank ", source, " sent a piece of it that does not fit"), source));
    return {true, nullptr};
  }
  peer.arrivingReceive = receive;
  return {true, receive->data + at->second.arrived};
}

void Messenger::dataArrived(int source, const FrameHeader& header) {
  faultPoint("p2p.piece_arrived");
  Peer& peer = peers_[source];
  peer.arrivingReceive = nullptr;
  const auto at = peer.inbound.find(header.p2p.id);
  if (at == peer.inbound.end()) return;
  at->second.arrived += header.bytes;
  if (at->second.arrived < at->second.receive->bytes) return;
  finish(at->second.receive, std::nullopt);  // nothing, if it was given up
  peer.inbound.erase(at);
}

void Messenger::withdrawArrived(int source, const FrameHeader& header) {
  const uint64_t id = header.p2p.id;
  matcher_.removeUnexpected([&](const UnexpectedMessage& it) {
    return it.kind == UnexpectedMessage::Kind::kRendezvous && it.source == source && it.id == id;
  });
  const auto at = peers_[source].inbound.find(id);
  if (at == peers_[source].inbound.end()) return;
  finish(at->second.receive,
         Error(ErrorCode::kPeerFailed, str("rank ", source, " gave up sending it (timeout there)"),
               source));
  peers_[source].inbound.erase(at);
}

void Messenger::onLost(int lostPeer, const Error& why, Loss) {
  Peer& peer = peers_[lostPeer];
  peer.lost = why;
  for (const auto& [id, send] : std::exchange(peer.outbound, {})) finish(send, why);
  for (const auto& [id, inbound] : std::exchange(peer.inbound, {})) finish(inbound.receive, why);
  if (peer.arrivingReceive) finish(std::exchange(peer.arrivingReceive, nullptr), why);
  if (peer.arrivingMessage && peer.arrivingMessage->taker) {
    finish(peer.arrivingMessage->taker, why);
  }
  peer.arrivingMessage = nullptr;
  // Messages that came whole can still be received.
  matcher_.removeUnexpected([&](const UnexpectedMessage& it) {
    return it.source == lostPeer && (it.kind == UnexpectedMessage::Kind::kRendezvous ||
                                     (it.kind == UnexpectedMessage::Kind::kEager && !it.arrived));
  });
  const bool alone = isAlone();
  for (const ReceivePtr& receive : matcher_.posted([&](const ReceiveOperation& it) {
         return it.peer == lostPeer || (alone && it.peer == kAnySource);
       })) {
    matcher_.remove(receive);
    finish(receive, why);
  }
}

}  // namespace taco
