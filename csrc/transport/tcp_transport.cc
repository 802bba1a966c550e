#include "csrc/transport/tcp_transport.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "csrc/base/format.h"
#include "csrc/base/log.h"

namespace taco {
namespace {

using std::chrono::nanoseconds;

constexpr size_t kMostDiscarded = 16 << 20;  // bytes: a peer that sends faster than we drop them
constexpr size_t kReadBudget = 4 << 20;      // bytes from one peer before the others get their turn

}  // namespace

TcpTransport::TcpTransport(TcpConfig config, std::unique_ptr<TcpListener> listener)
    : config_(std::move(config)),
      creator_(::getpid()),
      networkId_(localNetworkId()),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wakeUp_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      listener_(std::move(listener)),
      answersCheckedAt_(Clock::now()) {
  if (!epoll_ || !wakeUp_) throw systemError("no epoll or eventfd descriptor can be made", errno);
  if (static_cast<int>(config_.addresses.size()) != config_.size) {
    throw Error(ErrorCode::kInvalidArgument,
                str("TcpTransport needs the addresses of ", config_.size, " ranks, but got ",
                    config_.addresses.size()));
  }
  for (int peer = 0; peer < config_.size; ++peer) {
    addresses_.push_back(TcpAddress::decode(config_.addresses[peer]));
    peers_.push_back(peer == config_.rank ? nullptr
                                          : std::make_unique<Peer>(peer, config_.rank, counters_));
  }
  observe(wakeUp_.get(), label(About::kWakeUp));
  observe(listener_->fd(), label(About::kListener));
}

TcpTransport::~TcpTransport() {
  if (isOurs()) closeEverything();
}

bool TcpTransport::isOurs() const { return !closed_ && ::getpid() == creator_; }

TcpHello TcpTransport::ownHello() const {
  TcpHello hello;
  hello.secret = config_.secret;
  hello.channel = channelId(config_.channel);
  hello.rank = config_.rank;
  hello.size = config_.size;
  return hello;
}

// Edge-triggered: each change is told once, so that a paused stream with bytes in it costs nothing,
// and nothing has to be registered anew while data flows.
void TcpTransport::observe(int fd, uint64_t what) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
  if (what >> 56 == static_cast<uint64_t>(About::kOutgoing)) event.events |= EPOLLOUT;
  event.data.u64 = what;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return;
  if (errno != EEXIST || ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) {
    throw systemError("a socket cannot be watched by epoll", errno);
  }
}

void TcpTransport::markUnsettled(int peer) { unsettled_.push_back(peer); }

void TcpTransport::startConnecting(int peer) {
  TcpOutgoing& out = peers_[peer]->out;
  const TcpAddress& there = addresses_[peer];
  const bool near = !networkId_.empty() && there.networkId == networkId_;
  out.connect(near ? "127.0.0.1" : there.host, there.port, ownHello());
  beginStream(peer);
}

void TcpTransport::beginStream(int peer) {
  TcpOutgoing& out = peers_[peer]->out;
  if (out.isLive()) {
    observe(out.fd(), label(About::kOutgoing, static_cast<uint64_t>(peer)));
    out.flush();
  }
  if (!out.isLive()) markUnsettled(peer);
}

void TcpTransport::send(int peer, const FrameHeader& header, const void* payload,
                        std::function<void()> onSent) {
  if (!isOurs() || peers_[peer]->lost) return;
  TcpOutgoing& out = peers_[peer]->out;
  const bool wasIdle = !out.hasUnsent();
  if (!out.isUsed()) startConnecting(peer);
  out.enqueue(header, payload, std::move(onSent));
  // With older frames still unsent the kernel takes nothing now: epoll will say when it does.
  if (wasIdle && out.isLive()) out.flush();
  if (!out.isLive()) markUnsettled(peer);
}

void TcpTransport::sendCopy(int peer, const FrameHeader& header, const void* payload) {
  if (!isOurs() || peers_[peer]->lost) return;
  send(peer, header, payload, nullptr);
  peers_[peer]->out.detachLast();
}

void TcpTransport::watch(int peer) {
  if (isOurs() && !peers_[peer]->lost && !peers_[peer]->out.isUsed()) startConnecting(peer);
}

void TcpTransport::resume(int peer) {
  if (!isOurs() || !peers_[peer]->in.isPaused()) return;
  peers_[peer]->in.resume();
  readable_.push_back(peer);
}

void TcpTransport::discardPayload(int peer) {
  if (isOurs()) peers_[peer]->in.discardPayload();
}

void TcpTransport::detachPayload(int peer, const void* data, size_t bytes) {
  if (isOurs()) peers_[peer]->out.detachPayload(data, bytes);
}

bool TcpTransport::progress(nanoseconds maxWait) {
  if (!isOurs()) return false;
  bool moved = readStreams();
  moved |= pollEvents(0);
  moved |= readStreams();
  moved |= settlePeers();
  if (!moved && maxWait.count() > 0 && readable_.empty()) {
    moved |= pollEvents(timeoutMillis(maxWait));
    moved |= readStreams();
    moved |= settlePeers();
  }
  tendVisitors();
  checkAnswers();
  return moved;
}

// epoll counts in milliseconds; rounded up, because a sleep of 0 would spin.
int TcpTransport::timeoutMillis(nanoseconds maxWait) const {
  const auto millis = std::chrono::ceil<Millis>(maxWait);
  Millis limit = kAnswersInterval;
  if (!visitors_.empty()) limit = std::min(limit, Millis(500));
  for (const auto& peer : peers_) {
    if (peer && !peer->lost && peer->suspectedAt) limit = std::min(limit, Millis(20));
  }
  if (acceptAgainAt_) limit = std::min(limit, Millis(100));
  return static_cast<int>(std::min(millis, limit).count());
}

void TcpTransport::waitReady(nanoseconds maxWait) {
  if (::getpid() != creator_) return;
  pollfd ready{epoll_.get(), POLLIN, 0};
  const auto millis = std::chrono::ceil<Millis>(maxWait).count();
  ::poll(&ready, 1, static_cast<int>(std::min<int64_t>(millis, 60000)));
}

void TcpTransport::wake() {
  if (::getpid() != creator_) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wakeUp_.get(), &one, sizeof one);
}

bool TcpTransport::pollEvents(int timeout) {
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_.get(), events, 64, timeout);
  bool moved = false;
  for (int i = 0; i < count; ++i) {
    const uint64_t which = events[i].data.u64 & ((uint64_t{1} << 56) - 1);
    const int peer = static_cast<int>(which);
    switch (static_cast<About>(events[i].data.u64 >> 56)) {
      case About::kWakeUp: {
        uint64_t ignored;
        [[maybe_unused]] const ssize_t got = ::read(wakeUp_.get(), &ignored, sizeof ignored);
        moved = true;
        break;
      }
      case About::kListener:
        moved |= acceptVisitors();
        break;
      case About::kVisitor:
        moved |= hearVisitor(which);
        break;
      case About::kOutgoing: {
        TcpOutgoing& out = peers_[peer]->out;
        moved |= out.handleEvents(events[i].events);
        if (out.wasShutOut()) {
          out.connectAgain();
          beginStream(peer);
        }
        if (!out.isLive()) markUnsettled(peer);
        break;
      }
      case About::kIncoming:
        peers_[peer]->in.markReadable((events[i].events & ~uint32_t{EPOLLIN}) != 0);
        readable_.push_back(peer);
        break;
    }
  }
  return moved;
}

bool TcpTransport::readStreams() {
  if (readable_.empty()) return false;
  bool moved = false;
  std::vector<int> now;
  now.swap(readable_);
  for (const int peer : now) {
    TcpIncoming& in = peers_[peer]->in;
    if (peers_[peer]->lost || (!in.wantsRead() && !in.hasOffer())) continue;
    moved |= in.read(*receiver_, kReadBudget);
    if (!in.isLive()) markUnsettled(peer);
    if (in.wantsRead()) readable_.push_back(peer);  // its budget is used up
  }
  return moved;
}

void TcpTransport::fail(const Error& why) {
  if (!isOurs()) return;
  acceptVisitors();  // who waits for this rank without having heard of it is told as well
  const std::string message = failMessage(why);
  for (const auto& peer : peers_) {
    if (!peer || peer->lost) continue;
    peer->in.lastWords(message);
    peer->out.lastWords(message);
  }
  for (const auto& peer : peers_) {
    if (peer && !peer->lost) peer->in.discardAll(kMostDiscarded);  // see TcpOutgoing::close()
  }
  closeEverything();
}

void TcpTransport::close(std::chrono::milliseconds maxWait) {
  if (!isOurs()) return;
  const Deadline deadline = Deadline::after(std::max(maxWait, Millis(1)));
  FrameHeader goodbye;
  goodbye.kind = FrameKind::kGoodbye;
  for (const auto& peer : peers_) {
    if (!peer || peer->lost || !peer->out.isLive()) continue;
    peer->out.enqueue(goodbye, nullptr, nullptr);
    peer->out.flush();
  }
  // What still arrives belongs to operations that this rank will not take part in.
  for (;;) {
    acceptVisitors();
    bool flushed = true;
    for (const auto& peer : peers_) {
      if (!peer || peer->lost) continue;
      peer->in.discardAll(kMostDiscarded);
      flushed &= !peer->out.hasUnsent() && peer->out.isConfirmed();
    }
    if (flushed || deadline.expired()) break;
    epoll_event events[64];
    // 1 ms: no event tells that the peer's kernel has confirmed.
    const int count = ::epoll_wait(epoll_.get(), events, 64, 1);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 >> 56 != static_cast<uint64_t>(About::kOutgoing)) continue;
      const int peer = static_cast<int>(events[i].data.u64 & 0xffffffff);
      peers_[peer]->out.handleEvents(events[i].events);
      if (peers_[peer]->out.wasShutOut()) {
        peers_[peer]->out.connectAgain();
        beginStream(peer);
      }
    }
  }
  for (const auto& peer : peers_) {
    if (!peer || peer->lost) continue;
    peer->in.lastWords(goodbyeMessage(peer->out.framesQueued()));
    peer->in.discardAll(kMostDiscarded);
  }
  closeEverything();
}

void TcpTransport::closeEverything() {
  closed_ = true;
  for (const auto& peer : peers_) {
    if (!peer) continue;
    peer->out.close();
    peer->in.close();
  }
  visitors_.clear();
  listener_.reset();
}

}  // namespace taco
