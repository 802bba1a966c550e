// How an MpiTransport ends, and how it learns that its peers have.

#include <algorithm>

#include "csrc/base/format.h"
#include "csrc/mpi/mpi_transport.h"
#include "csrc/transport/tcp_wire.h"

namespace taco {
namespace {

constexpr Millis kLookInterval{500};  // between looks at the life of watched processes
constexpr Millis kGrace{300};         // what a dead process has sent before may still be on its way
constexpr Millis kLastWords{200};     // for MPI to take them

// Longer ones might wait for their receivers.
constexpr size_t kLongestLastWord = 1500;

// Between looks at what has arrived, while the last frames go.
constexpr Millis kSlice{20};

}  // namespace

void MpiTransport::lookForTheDead() {
  if (watched_.empty()) return;
  const auto now = Clock::now();
  if (now - looked_ < kLookInterval) return;
  looked_ = now;
  for (const int peer : watched_) {
    Peer& from = peers_[peer];
    if (from.lost || from.trouble) continue;
    if (!from.deadSince) {
      if (config_.addresses[static_cast<size_t>(peer)].isDead(machine_)) from.deadSince = now;
    } else if (now - *from.deadSince >= kGrace) {
      from.trouble =
          Error(ErrorCode::kPeerFailed,
                str("rank ", peer, " is gone: its process (pid ",
                    config_.addresses[static_cast<size_t>(peer)].pid, " on this machine) has died"),
                peer);
      troubled_.push_back(peer);
    }
  }
}

void MpiTransport::lose(int peer, const Error& why, Receiver::Loss how) {
  Peer& gone = peers_[peer];
  if (gone.lost) return;
  gone.lost = true;
  gone.queue.clear();
  gone.packets.clear();
  gone.landing = nullptr;
  if (!closing_) receiver_->onLost(peer, why, how);
}

void MpiTransport::loseAll(const Error& why) {
  for (int peer = 0; peer < config_.size; ++peer) {
    if (peer != config_.rank) lose(peer, why, Receiver::Loss::kDied);
  }
}

void MpiTransport::fail(const Error& why) {
  if (!isOurs()) return;
  const std::string body = failMessage(why).substr(0, kLongestLastWord);
  // To all, also those that have never heard of this rank: they may be waiting for it.
  for (int peer = 0; peer < config_.size; ++peer) {
    if (peer != config_.rank && !peers_[peer].lost) tell(peer, PacketKind::kFail, body);
  }
  end(PacketKind::kFail, body);
}

void MpiTransport::close(std::chrono::milliseconds maxWait) {
  if (!isOurs()) return;
  closing_ = true;
  const Deadline deadline = Deadline::after(std::max(maxWait, Millis(1)));
  for (;;) {
    bool queued = false;
    for (int peer = 0; peer < config_.size; ++peer) {
      pump(peer);
      queued |= !peers_[peer].lost && !peers_[peer].trouble && !peers_[peer].queue.empty();
    }
    if (!queued || deadline.expired()) break;
    waitReady(deadline.remaining(kSlice));
    takeMail();
  }
  for (int peer = 0; peer < config_.size; ++peer) {
    if (peer == config_.rank || peers_[peer].lost || !peers_[peer].known) continue;
    tell(peer, peers_[peer].queue.empty() ? PacketKind::kGoodbye : PacketKind::kCut);
  }
  port_.flush(channel_, deadline);
  end(PacketKind::kGoodbye, "");
}

// Tells those who have not been told, and lets go of everything.
void MpiTransport::end(PacketKind kind, const std::string& body) {
  if (kind == PacketKind::kCut) {
    for (int peer = 0; peer < config_.size; ++peer) {
      if (peer != config_.rank && !peers_[peer].lost && peers_[peer].known) tell(peer, kind);
    }
  }
  PacketHeader lastWord;
  lastWord.channel = channel_;
  lastWord.kind = kind;
  lastWord.rank = config_.rank;
  port_.close(channel_, lastWord, body);
  port_.flush(channel_, Deadline::after(kLastWords));
  closed_ = true;
  for (Peer& peer : peers_) {
    peer.queue.clear();
    peer.packets.clear();
  }
}

}  // namespace taco
