// How TcpTransport decides that a peer is lost.

#include "csrc/base/format.h"
#include "csrc/transport/tcp_transport.h"

namespace taco {
namespace {

// How long a silent end on one stream waits for what the other one may still bring.
constexpr Millis kGrace{100};
// After a goodbye the stream that it announced is on its way or in the accept queue.
constexpr Millis kGoodbyeGrace{2000};

}  // namespace

bool TcpTransport::settlePeers() {
  bool moved = false;
  std::vector<int> now;
  now.swap(unsettled_);
  for (const int peer : now) moved |= settle(peer);
  for (int peer = 0; peer < config_.size; ++peer) {
    if (peers_[peer] && peers_[peer]->suspectedAt && !peers_[peer]->lost) moved |= settle(peer);
  }
  return moved;
}

// Decides from the ends of both streams whether the peer is lost, and why.
bool TcpTransport::settle(int peer) {
  Peer& it = *peers_[peer];
  if (it.lost) return false;
  const StreamEnd out = it.out.end();
  const StreamEnd in = it.in.end();
  if (out == StreamEnd::kNone && in == StreamEnd::kNone) return false;
  const auto now = Clock::now();
  if (!it.suspectedAt) it.suspectedAt = now;
  const auto suspectedFor = now - *it.suspectedAt;

  using Loss = Receiver::Loss;
  const Error left(ErrorCode::kPeerFailed,
                   str("rank ", peer,
                       " has closed its side of the group (destroy_process_group, or "
                       "the end of its program)"),
                   peer);
  if (out == StreamEnd::kFailed) {
    lose(peer, it.out.endReason(), Loss::kFailed);
  } else if (in == StreamEnd::kFailed) {
    lose(peer, it.in.endReason(), Loss::kFailed);
  } else if (in == StreamEnd::kGoodbye) {
    lose(peer, left, Loss::kLeft);
  } else if (out == StreamEnd::kGoodbye) {
    if (it.out.framesBehindGoodbye() == 0) {
      lose(peer, left, Loss::kLeft);
    } else if (in == StreamEnd::kCut) {
      lose(peer, it.in.endReason(), Loss::kDied);
    } else if (!it.in.isUsed() && suspectedFor >= kGoodbyeGrace) {
      lose(peer, left, Loss::kLeft);
    }
  } else {
    // A frame that nobody wants yet is no reason to hurry: what the peer sent before it died still
    // counts, unless something cannot be sent to it any more.
    if (in == StreamEnd::kNone && it.in.isPaused() && !it.out.hasDropped()) return false;
    const bool otherMayTell = in == StreamEnd::kNone ? it.in.isLive() : it.out.isLive();
    if (!otherMayTell || suspectedFor >= kGrace) {
      lose(peer, in == StreamEnd::kCut ? it.in.endReason() : it.out.endReason(), Loss::kDied);
    }
  }
  return it.lost;
}

void TcpTransport::lose(int peer, const Error& why, Receiver::Loss how) {
  peers_[peer]->lost = true;
  peers_[peer]->out.close();
  peers_[peer]->in.close();
  receiver_->onLost(peer, why, how);
}

// A host that vanished sends no reset: with bytes in flight, only the silence tells.
void TcpTransport::checkAnswers() {
  const auto now = Clock::now();
  if (now - answersCheckedAt_ < kAnswersInterval) return;
  answersCheckedAt_ = now;
  for (int peer = 0; peer < config_.size; ++peer) {
    if (!peers_[peer] || !peers_[peer]->out.isUnanswered()) continue;
    peers_[peer]->out.cut(
        Error(ErrorCode::kPeerFailed,
              str("rank ", peer, " is gone: its machine at ", addresses_[peer].hostAndPort(),
                  " has not answered for 15 s, it has stopped or the network to it is broken"),
              peer));
    markUnsettled(peer);
  }
}

}  // namespace taco
