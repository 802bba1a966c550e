// The door of TcpTransport: connections that were accepted and have yet to say who they are.
// Anybody on the network can connect, so whatever comes is answered with at most a closed
// connection and a line in the log, and nobody else waits meanwhile.

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>
#include <vector>

#include "csrc/base/format.h"
#include "csrc/base/log.h"
#include "csrc/transport/tcp_transport.h"

namespace taco {
namespace {

constexpr size_t kMostVisitors = 256;
constexpr int kMostWarnings = 8;

}  // namespace

bool TcpTransport::acceptVisitors() {
  bool moved = false;
  acceptAgainAt_.reset();
  for (;;) {
    FileDescriptor socket(
        ::accept4(listener_->fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      // These are about one connection that is gone again already.
      if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) {
        log(LogLevel::kWarn,
            str("rank ", config_.rank, " cannot accept a connection now and will try again: ",
                std::generic_category().message(errno), " (see ulimit -n)"));
        acceptAgainAt_ = Clock::now() + Millis(100);
      }
      return moved;
    }
    moved = true;
    if (visitors_.size() >= kMostVisitors) {
      dropVisitor(visitors_.begin()->first, "too many connections that do not say who they are");
    }
    configureStream(socket.get());
    const uint64_t id = nextVisitor_++;
    observe(socket.get(), label(About::kVisitor, id));
    visitors_.emplace(id, Visitor{std::move(socket), Clock::now(), 0, {}});
    hearVisitor(id);
  }
}

bool TcpTransport::hearVisitor(uint64_t id) {
  const auto at = visitors_.find(id);
  if (at == visitors_.end()) return false;
  Visitor& visitor = at->second;
  while (visitor.got < sizeof visitor.hello) {
    const ssize_t got =
        ::recv(visitor.socket.get(), reinterpret_cast<char*>(&visitor.hello) + visitor.got,
               sizeof visitor.hello - visitor.got, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (got <= 0) {
      dropVisitor(id, "it left before it had said who it is");
      return true;
    }
    visitor.got += static_cast<size_t>(got);
    counters_.received.fetch_add(static_cast<uint64_t>(got), std::memory_order_relaxed);
  }
  const std::string why = refusal(visitor.hello, ownHello());
  if (!why.empty()) {
    dropVisitor(id, why);
    return true;
  }
  const int peer = visitor.hello.rank;
  TcpIncoming& in = peers_[peer]->in;
  if (peers_[peer]->lost) {  // it failed, and its own stream comes after the news of that
    visitors_.erase(at);
    return true;
  }
  if (in.isUsed()) {
    dropVisitor(id, str("rank ", peer, " is connected already"));
    return true;
  }
  observe(visitor.socket.get(), label(About::kIncoming, static_cast<uint64_t>(peer)));
  in.adopt(std::move(visitor.socket));
  visitors_.erase(at);
  readable_.push_back(peer);
  return true;
}

void TcpTransport::dropVisitor(uint64_t id, const std::string& why) {
  visitors_.erase(id);
  // The first ones may help somebody; a flood of them is to fill no disk.
  const LogLevel level = ++visitorsDropped_ <= kMostWarnings ? LogLevel::kWarn : LogLevel::kDebug;
  log(level, str("rank ", config_.rank, " closed a connection to its port ",
                 listener_->where().port, ": ", why));
}

void TcpTransport::tendVisitors() {
  if (acceptAgainAt_ && Clock::now() >= *acceptAgainAt_) acceptVisitors();
  while (!visitors_.empty()) {  // in the order of their coming
    const auto& [id, visitor] = *visitors_.begin();
    if (Clock::now() - visitor.since < config_.helloTimeout) break;
    const uint64_t oldest = id;
    hearVisitor(oldest);  // this rank may have slept meanwhile, rather than the visitor
    if (visitors_.count(oldest)) dropVisitor(oldest, "it does not say who it is");
  }
}

}  // namespace taco
