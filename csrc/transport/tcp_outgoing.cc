#include "csrc/transport/tcp_outgoing.h"

#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "csrc/base/format.h"

namespace taco {
namespace {

constexpr size_t kFramesPerWrite = 16;

// Retransmissions or window probes without any answer, and for how long, until a host counts as
// vanished.
constexpr unsigned kUnansweredTries = 5;
constexpr unsigned kUnansweredMillis = 15000;

constexpr int kMostAttempts = 3;

std::string errnoText(int value) { return std::generic_category().message(value); }

}  // namespace

void configureStream(int fd) {
  const auto set = [fd](int level, int option, int value) {
    ::setsockopt(fd, level, option, &value, sizeof value);  // each is an improvement, none a must
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  // An idle connection to a host that vanished is noticed after 10 + 4 * 5 seconds. With bytes in
  // flight keepalive is silent, and isUnanswered() looks. TCP_USER_TIMEOUT would cover both, but it
  // also ends connections whose peer is alive and merely does not read for that long (Linux counts
  // a closed window, even one whose probes are answered).
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
}

Error TcpOutgoing::gone(const std::string& how) const {
  return Error(ErrorCode::kPeerFailed, str("rank ", peer_, " ", how), peer_);
}

void TcpOutgoing::cut(const Error& why) {
  if (end_ != StreamEnd::kNone) return;
  end_ = StreamEnd::kCut;
  why_ = why;
}

void TcpOutgoing::cutByErrno(int errnoValue) {
  if (state_ == State::kOpen) {
    cut(gone(goneBecause(errnoValue)));
  } else if (errnoValue == ECONNREFUSED) {
    cut(gone(str("is gone: nobody listens at its address ", where_,
                 " any more, it has closed its side of the group or died")));
  } else {
    cut(gone(
        str("cannot be reached at ", where_, ": ", errnoText(errnoValue),
            ". If that is the wrong network, name the right interface in TACO_SOCKET_IFNAME")));
  }
}

void TcpOutgoing::connect(const std::string& host, uint16_t port, const TcpHello& hello) {
  host_ = host;
  port_ = port;
  where_ = TcpAddress{host, port, ""}.hostAndPort();
  hello_ = hello;
  tryToConnect();
}

void TcpOutgoing::connectAgain() {
  shutOut_ = false;
  tryToConnect();
}

void TcpOutgoing::tryToConnect() {
  ++attempts_;
  state_ = State::kConnecting;
  const SocketAddress address = socketAddress(host_, port_);
  socket_ =
      FileDescriptor(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_) {
    cut(gone(str("cannot be reached at ", where_, ": no socket can be made (", errnoText(errno),
                 "); see ulimit -n")));
    return;
  }
  configureStream(socket_.get());
  int result = ::connect(socket_.get(), address.get(), address.length);
  // Over loopback the handshake is complete by now, and asking again tells. The hello can then go
  // at once, rather than with the next progress(), which may be far away.
  if (result != 0 && errno == EINPROGRESS) {
    result = ::connect(socket_.get(), address.get(), address.length);
    if (result != 0 && errno == EALREADY) return;
  }
  if (result == 0 || errno == EISCONN) {
    state_ = State::kOpen;
  } else if (errno != EINTR) {
    cutByErrno(errno);
  }
}

void TcpOutgoing::finishConnecting() {
  int failure = 0;
  socklen_t length = sizeof failure;
  ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &failure, &length);
  char next;
  const bool closed = failure == 0 && ::recv(socket_.get(), &next, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
  if ((closed || failure == ECONNRESET || failure == EPIPE) && attempts_ < kMostAttempts) {
    shutOut_ = true;
  } else if (failure != 0) {
    cutByErrno(failure);
  } else {
    state_ = State::kOpen;
  }
}

void TcpOutgoing::enqueue(const FrameHeader& header, const void* payload,
                          std::function<void()> onSent) {
  queue_.push_back({header, static_cast<const char*>(payload), std::move(onSent), nullptr});
  ++framesQueued_;
}

void TcpOutgoing::detachPayload(const void* data, size_t bytes) {
  const char* begin = static_cast<const char*>(data);
  for (Frame& frame : queue_) {
    if (frame.payload >= begin && frame.payload < begin + bytes) detach(frame);
  }
}

void TcpOutgoing::detachLast() {
  if (!queue_.empty()) detach(queue_.back());
}

void TcpOutgoing::detach(Frame& frame) {
  if (frame.own || frame.header.bytes == 0) return;
  frame.own = std::make_unique_for_overwrite<char[]>(frame.header.bytes);
  std::memcpy(frame.own.get(), frame.payload, frame.header.bytes);
  frame.payload = frame.own.get();
}

bool TcpOutgoing::flush() {
  if (flushing_) return false;
  bool moved = false;
  while (state_ == State::kOpen && hasUnsent()) {
    iovec parts[1 + 2 * kFramesPerWrite];
    size_t count = 0;
    size_t skip = frontSent_;
    const auto add = [&](const void* data, size_t bytes) {
      const size_t skipped = std::min(skip, bytes);
      skip -= skipped;
      if (bytes == skipped) return;
      char* from = static_cast<char*>(const_cast<void*>(data)) + skipped;
      parts[count++] = {from, bytes - skipped};
    };
    if (helloSent_ < sizeof hello_) {
      parts[count++] = {reinterpret_cast<char*>(&hello_) + helloSent_, sizeof hello_ - helloSent_};
    }
    for (size_t i = 0; i < std::min(queue_.size(), kFramesPerWrite); ++i) {
      add(&queue_[i].header, sizeof(FrameHeader));
      add(queue_[i].payload, queue_[i].header.bytes);
    }
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    const ssize_t written = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) break;
      const int why = errno;
      readControl();  // the reason may have come before the reset
      cutByErrno(why);
      return true;
    }
    counters_.sent.fetch_add(static_cast<uint64_t>(written), std::memory_order_relaxed);
    moved = true;
    consume(static_cast<size_t>(written));
  }
  return moved;
}

void TcpOutgoing::consume(size_t written) {
  const size_t ofHello = std::min(written, sizeof hello_ - helloSent_);
  helloSent_ += ofHello;
  written -= ofHello;
  flushing_ = true;
  while (!queue_.empty()) {
    const size_t left = sizeof(FrameHeader) + queue_.front().header.bytes - frontSent_;
    if (written < left) {
      frontSent_ += written;
      break;
    }
    written -= left;
    frontSent_ = 0;
    const Frame done = std::move(queue_.front());
    queue_.pop_front();
    if (done.onSent) done.onSent();
  }
  flushing_ = false;
}

bool TcpOutgoing::handleEvents(uint32_t events) {
  if (!isLive()) return false;
  bool moved = false;
  if (state_ == State::kConnecting) {
    finishConnecting();
    if (shutOut_) return true;
    moved = true;
  }
  if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) moved |= readControl();
  if (isLive()) moved |= flush();
  return moved;
}

bool TcpOutgoing::readControl() {
  bool moved = false;
  while (end_ == StreamEnd::kNone && state_ == State::kOpen) {
    char bytes[1024];
    const ssize_t got = ::recv(socket_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    const int failure = got < 0 ? errno : 0;
    if (got > 0) control_.append(bytes, static_cast<size_t>(got));
    moved = true;

    FrameHeader header;
    const bool hasHeader = control_.size() >= sizeof header;
    if (hasHeader) std::memcpy(&header, control_.data(), sizeof header);
    const bool fits =
        !hasHeader || ((header.kind == FrameKind::kFail || header.kind == FrameKind::kGoodbye) &&
                       header.bytes <= kLongestReason);
    if (!fits) {
      cut(gone("does not speak TACO's protocol: something else answers at its address " + where_));
    } else if (hasHeader && (got <= 0 || control_.size() >= sizeof header + header.bytes)) {
      if (header.kind == FrameKind::kFail) {
        end_ = StreamEnd::kFailed;
        why_ = failureToldBy(peer_, self_, header, control_.substr(sizeof header, header.bytes));
      } else {
        end_ = StreamEnd::kGoodbye;
        framesBehindGoodbye_ = header.p2p.size;
      }
    } else if (got == 0) {
      cut(
          gone("is gone: it closed the connection to this rank without a goodbye, its process has "
               "probably died"));
    } else if (got < 0) {
      cutByErrno(failure);
    }
  }
  return moved;
}

bool TcpOutgoing::isConfirmed() const {
  if (!isLive()) return true;
  int bytes = 0;
  return ::ioctl(socket_.get(), SIOCOUTQ, &bytes) != 0 || bytes == 0;
}

bool TcpOutgoing::isUnanswered() const {
  if (!isLive() || state_ != State::kOpen) return false;
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  return std::max(info.tcpi_retransmits, info.tcpi_probes) >= kUnansweredTries &&
         info.tcpi_last_ack_recv >= kUnansweredMillis;
}

void TcpOutgoing::lastWords(const std::string& message) {
  if (state_ != State::kOpen || !isLive() || frontSent_ > 0) return;
  std::string bytes(reinterpret_cast<const char*>(&hello_) + helloSent_,
                    sizeof hello_ - helloSent_);
  bytes += message;
  const ssize_t written =
      ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (written > 0) {
    counters_.sent.fetch_add(static_cast<uint64_t>(written), std::memory_order_relaxed);
  }
}

void TcpOutgoing::close() {
  queue_.clear();
  if (socket_ && state_ == State::kOpen) {
    // Unread bytes would turn the close into a reset, which destroys what is under way to the peer.
    char ignored[1024];
    while (::recv(socket_.get(), ignored, sizeof ignored, MSG_DONTWAIT) > 0) {
    }
    ::shutdown(socket_.get(), SHUT_WR);
  }
  socket_.close();
  if (state_ == State::kIdle) state_ = State::kConnecting;  // never to be connected again
  cut(gone("was closed by this rank"));
}

}  // namespace taco
