// The receiving half of MpiTransport: packets become frames.

#include <algorithm>
#include <cstring>
#include <utility>

#include "csrc/base/format.h"
#include "csrc/mpi/mpi_transport.h"
#include "csrc/transport/tcp_wire.h"

namespace taco {

void MpiTransport::resume(int peer) {
  if (!isOurs() || !peers_[peer].paused) return;
  peers_[peer].paused = false;
  readable_.push_back(peer);
  wake();
}

void MpiTransport::discardPayload(int peer) {
  if (isOurs()) peers_[peer].landing = nullptr;
}

bool MpiTransport::takeMail() {
  std::deque<MpiPacket> arrived;
  std::optional<Error> broken;
  bool moved = false;
  {
    std::lock_guard<std::mutex> mail(mailbox_.mutex);
    arrived.swap(mailbox_.arrived);
    moved = std::exchange(mailbox_.rung, false);
    broken = mailbox_.broken;
  }
  for (MpiPacket& packet : arrived) {
    const PacketHeader header = packet.header();
    if (header.rank < 0 || header.rank >= config_.size || header.rank == config_.rank) continue;
    Peer& peer = peers_[header.rank];
    peer.known = true;
    if (peer.lost) continue;
    moved = true;
    received_.fetch_add(packet.size, std::memory_order_relaxed);
    switch (header.kind) {
      case PacketKind::kData:
      case PacketKind::kGoodbye:
      case PacketKind::kCut:
        peer.packets.push_back(std::move(packet));
        readable_.push_back(header.rank);
        break;
      case PacketKind::kCredit:
        // Bounded, so that no sum of what a peer says can overflow.
        peer.window += static_cast<int64_t>(std::min<uint64_t>(header.credit, uint64_t{1} << 40));
        pump(header.rank);
        break;
      case PacketKind::kWatch:
        break;  // it is known now
      case PacketKind::kFail: {
        FrameHeader failure;
        const size_t bytes = std::min(packet.bodyBytes(), sizeof failure);
        std::memcpy(&failure, packet.body(), bytes);
        const std::string reason(packet.body() + bytes, packet.bodyBytes() - bytes);
        lose(header.rank, failureToldBy(header.rank, config_.rank, failure, reason),
             Receiver::Loss::kFailed);
        break;
      }
    }
  }
  if (broken) loseAll(*broken);
  return moved;
}

bool MpiTransport::read(int peer) {
  bool moved = false;
  while (advance(peer)) moved = true;
  Peer& from = peers_[peer];
  if (!from.lost && from.owed >= static_cast<uint64_t>(kWindowBytes / 4)) credit(peer);
  return moved;
}

// One step through the bytes that have come; false if there is nothing more to do now.
bool MpiTransport::advance(int peer) {
  Peer& from = peers_[peer];
  if (from.lost || from.paused || from.packets.empty()) return false;
  MpiPacket& packet = from.packets.front();
  if (packet.header().kind != PacketKind::kData) {
    if (packet.header().kind == PacketKind::kGoodbye) {
      lose(peer, Error(ErrorCode::kPeerFailed, str("rank ", peer, " has left the group"), peer),
           Receiver::Loss::kLeft);
    } else {
      lose(peer,
           Error(ErrorCode::kPeerFailed, str("rank ", peer, " is gone: it ended without a goodbye"),
                 peer),
           Receiver::Loss::kDied);
    }
    return true;
  }
  const size_t left = packet.bodyBytes() - from.offset;
  switch (from.state) {
    case Peer::State::kHeader:
      if (left == 0) {
        consumed(peer);
        return true;
      }
      if (left < sizeof(FrameHeader)) return refuse(peer);
      std::memcpy(&from.header, packet.body() + from.offset, sizeof(FrameHeader));
      from.offset += sizeof(FrameHeader);
      from.state = Peer::State::kOffered;
      return true;
    case Peer::State::kOffered: {
      const Receiver::Landing landing = receiver_->onHeader(peer, from.header);
      if (landing.nonsense) return refuse(peer);
      if (!landing.accepted) {
        from.paused = true;
        return false;
      }
      from.landing = static_cast<char*>(landing.data);
      from.remaining = from.header.bytes;
      from.state = Peer::State::kPayload;
      return true;
    }
    case Peer::State::kPayload: {
      const uint64_t bytes = std::min<uint64_t>(left, from.remaining);
      if (from.landing != nullptr && bytes > 0) {
        std::memcpy(from.landing, packet.body() + from.offset, bytes);
        from.landing += bytes;
      }
      from.offset += bytes;
      from.remaining -= bytes;
      if (from.offset == packet.bodyBytes()) consumed(peer);
      if (from.remaining > 0) return true;
      from.state = Peer::State::kHeader;
      from.landing = nullptr;
      receiver_->onArrived(peer, from.header);
      return true;
    }
  }
  return false;
}

bool MpiTransport::refuse(int peer) {
  Peer& from = peers_[peer];
  from.trouble = Error(ErrorCode::kPeerFailed,
                       str("rank ", peer, " sent a packet that makes no sense"), peer);
  troubled_.push_back(peer);
  from.paused = true;
  return false;
}

void MpiTransport::consumed(int peer) {
  Peer& from = peers_[peer];
  from.owed += static_cast<uint64_t>(costOf(from.packets.front()));
  port_.giveBack(std::move(from.packets.front()));
  from.packets.pop_front();
  from.offset = 0;
}

void MpiTransport::credit(int peer) {
  MpiPacket packet = newPacket(PacketKind::kCredit, 0);
  packet.header().credit = std::exchange(peers_[peer].owed, 0);
  post(peer, std::move(packet));
}

}  // namespace taco
