#include "csrc/transport/tcp_incoming.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "csrc/base/format.h"

namespace taco {
namespace {

// Where bytes go that nobody wants. Each thread has its own, since nothing orders their writes.
thread_local char scratch[64 * 1024];

constexpr const char* kNonsense = "sent a message that is not one of TACO's protocol";

bool isOurOwn(FrameKind kind) { return kind == FrameKind::kFail || kind == FrameKind::kGoodbye; }

}  // namespace

void TcpIncoming::cut(const std::string& how) {
  if (end_ != StreamEnd::kNone) return;
  end_ = StreamEnd::kCut;
  why_ = Error(ErrorCode::kPeerFailed, str("rank ", peer_, " ", how), peer_);
}

bool TcpIncoming::read(Transport::Receiver& receiver, size_t budget) {
  used_ = true;
  budget_ = budget;
  bool moved = false;
  while (isLive() && !paused_) {
    if (advance(receiver)) {
      moved = true;
      continue;
    }
    if (paused_ || !isLive() || !readable_ || budget_ == 0) break;
    moved |= receive();
  }
  return moved;
}

// One step with what is staged; false if more bytes are needed, or the receiver refuses.
bool TcpIncoming::advance(Transport::Receiver& receiver) {
  const size_t staged = stagedEnd_ - stagedBegin_;
  switch (state_) {
    case State::kHeader: {
      if (staged < sizeof header_) return false;
      std::memcpy(&header_, staging_.data() + stagedBegin_, sizeof header_);
      stagedBegin_ += sizeof header_;
      remaining_ = header_.bytes;
      state_ = State::kOffered;
      if (!isOurOwn(header_.kind)) return true;
      if (header_.bytes > kLongestReason) {
        cut(kNonsense);
        return false;
      }
      reason_.resize(header_.bytes);
      landing_ = reason_.data();
      state_ = State::kPayload;
      return true;
    }
    case State::kOffered: {
      const auto landing = receiver.onHeader(peer_, header_);
      if (landing.nonsense) {
        cut(kNonsense);
        return false;
      }
      if (!landing.accepted) {
        paused_ = true;
        return false;
      }
      landing_ = static_cast<char*>(landing.data);
      state_ = State::kPayload;
      return true;
    }
    case State::kPayload: {
      const size_t bytes = std::min<uint64_t>(staged, remaining_);
      if (bytes > 0) {
        if (landing_ != nullptr) {
          std::memcpy(landing_, staging_.data() + stagedBegin_, bytes);
          landing_ += bytes;
        }
        stagedBegin_ += bytes;
        remaining_ -= bytes;
      }
      if (remaining_ > 0) return false;
      state_ = State::kHeader;
      landing_ = nullptr;
      if (isOurOwn(header_.kind)) {
        finishOwnFrame();
      } else {
        receiver.onArrived(peer_, header_);
      }
      return true;
    }
  }
  return false;
}

void TcpIncoming::finishOwnFrame() {
  if (header_.kind == FrameKind::kGoodbye) {
    end_ = StreamEnd::kGoodbye;
  } else {
    end_ = StreamEnd::kFailed;
    why_ = failureToldBy(peer_, self_, header_, reason_);
  }
}

// One read: the rest of the payload into its place, and what follows it into the staging buffer.
bool TcpIncoming::receive() {
  if (stagedBegin_ == stagedEnd_) {
    stagedBegin_ = stagedEnd_ = 0;
  } else if (stagedBegin_ > 0) {  // the beginning of a header
    std::memmove(staging_.data(), staging_.data() + stagedBegin_, stagedEnd_ - stagedBegin_);
    stagedEnd_ -= stagedBegin_;
    stagedBegin_ = 0;
  }
  iovec parts[2];
  size_t count = 0;
  size_t ofPayload = 0;
  if (state_ == State::kPayload && remaining_ > 0) {
    ofPayload = landing_ != nullptr ? std::min<uint64_t>(remaining_, budget_)
                                    : std::min<uint64_t>(remaining_, sizeof scratch);
    parts[count++] = {landing_ != nullptr ? landing_ : scratch, ofPayload};
  }
  if (ofPayload == remaining_ || state_ != State::kPayload) {
    parts[count++] = {staging_.data() + stagedEnd_, staging_.size() - stagedEnd_};
  }
  size_t wanted = 0;
  for (size_t i = 0; i < count; ++i) wanted += parts[i].iov_len;
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
  if (got < 0) {
    if (errno == EINTR) return true;
    readable_ = false;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    cut(goneBecause(errno));
    return true;
  }
  if (got == 0) {
    const bool inside = state_ != State::kHeader || stagedEnd_ > 0;
    cut(str("is gone: it closed its connection ",
            inside ? "in the middle of a message" : "without a goodbye",
            ", its process has probably died"));
    return true;
  }
  const auto bytes = static_cast<size_t>(got);
  counters_.received.fetch_add(bytes, std::memory_order_relaxed);
  const size_t landed = std::min(bytes, ofPayload);
  if (landing_ != nullptr) landing_ += landed;
  remaining_ -= landed;
  stagedEnd_ += bytes - landed;
  budget_ -= std::min(budget_, bytes);
  // A short read means that the socket is empty, and epoll tells of what comes later; unless the
  // end has already been told of, which it does only once.
  if (bytes < wanted && !hangup_) readable_ = false;
  return true;
}

void TcpIncoming::discardPayload() {
  if (state_ == State::kPayload && !isOurOwn(header_.kind)) landing_ = nullptr;
}

void TcpIncoming::discardAll(size_t most) {
  landing_ = nullptr;
  stagedBegin_ = stagedEnd_ = 0;
  for (size_t dropped = 0; isLive() && dropped < most;) {
    const ssize_t got = ::recv(socket_.get(), scratch, sizeof scratch, MSG_DONTWAIT);
    if (got > 0) dropped += static_cast<size_t>(got);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) cut("closed its connection");
  }
}

void TcpIncoming::lastWords(const std::string& message) {
  if (!socket_) return;
  const ssize_t written =
      ::send(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (written > 0) {
    counters_.sent.fetch_add(static_cast<uint64_t>(written), std::memory_order_relaxed);
  }
}

void TcpIncoming::close() {
  used_ |= static_cast<bool>(socket_);
  socket_.close();
  cut("was closed by this rank");
}

}  // namespace taco
