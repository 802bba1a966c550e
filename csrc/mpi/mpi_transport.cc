#include "csrc/mpi/mpi_transport.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>
#include <utility>

#include "csrc/base/format.h"
#include "csrc/transport/tcp_wire.h"

namespace taco {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

// A wait yields for so long, then sleeps, at first briefly. MPI has nothing that could wake it.
constexpr microseconds kYieldFor{100};
constexpr microseconds kShortestSleep{20};
constexpr microseconds kLongestSleep{500};
// Longer waits are for nothing in particular: the port's thread rings the mailbox.
constexpr Millis kPatientWait{20};

// The group's secret makes it different from any other channel, also from one of the same name
// before.
uint64_t channelNumber(const MpiConfig& config) {
  return channelId(str(config.channel, "\n", config.secret));
}

}  // namespace

MpiTransport::MpiTransport(MpiConfig config, MpiPort& port)
    : config_(std::move(config)),
      creator_(::getpid()),
      channel_(channelNumber(config_)),
      machine_(MpiAddress::ofThisProcess().machine),
      port_(port),
      peers_(static_cast<size_t>(config_.size)),
      looked_(Clock::now()) {
  const MpiAddress& own = config_.addresses.at(static_cast<size_t>(config_.rank));
  std::set<int> seen;
  for (int rank = 0; rank < config_.size; ++rank) {
    const MpiAddress& address = config_.addresses[static_cast<size_t>(rank)];
    if (address.job != own.job || !seen.insert(address.worldRank).second) {
      throw Error(
          ErrorCode::kInvalidSettings,
          str("TACO_TRANSPORT=mpi: rank ", rank, " of the group is rank ", address.worldRank,
              address.job != own.job ? " of another MPI job; start all ranks with one mpirun"
                                     : " of MPI, and so is another one; start one process "
                                       "for each rank with mpirun"));
    }
  }
  for (Peer& peer : peers_) peer.window = kWindowBytes;
  port_.open(channel_, &mailbox_);
}

MpiTransport::~MpiTransport() {
  if (isOurs()) end(PacketKind::kCut, "");
}

bool MpiTransport::isOurs() const { return !closed_ && ::getpid() == creator_; }

MpiPacket MpiTransport::newPacket(PacketKind kind, size_t bodyBytes) {
  MpiPacket packet = port_.newPacket(sizeof(PacketHeader) + bodyBytes);
  packet.header().channel = channel_;
  packet.header().kind = kind;
  packet.header().rank = config_.rank;
  return packet;
}

void MpiTransport::post(int peer, MpiPacket packet) {
  Peer& to = peers_[peer];
  to.known = true;
  sent_.fetch_add(packet.size, std::memory_order_relaxed);
  try {
    port_.post(config_.addresses[static_cast<size_t>(peer)].worldRank, std::move(packet));
  } catch (const Error& why) {
    if (to.trouble) return;
    to.trouble =
        Error(ErrorCode::kPeerFailed, str("rank ", peer, " cannot be reached: ", why.what()), peer);
    troubled_.push_back(peer);
  }
}

void MpiTransport::tell(int peer, PacketKind kind, const std::string& body) {
  MpiPacket packet = newPacket(kind, body.size());
  std::memcpy(packet.body(), body.data(), body.size());
  packet.size += body.size();
  post(peer, std::move(packet));
}

void MpiTransport::send(int peer, const FrameHeader& header, const void* payload,
                        std::function<void()> onSent) {
  if (!isOurs() || peers_[peer].lost) return;
  Frame frame;
  frame.number = ++frames_;
  frame.header = header;
  frame.payload = static_cast<const char*>(payload);
  frame.onSent = std::move(onSent);
  peers_[peer].queue.push_back(std::move(frame));
  pump(peer);
}

void MpiTransport::sendCopy(int peer, const FrameHeader& header, const void* payload) {
  if (!isOurs() || peers_[peer].lost) return;
  const uint64_t number = frames_ + 1;
  send(peer, header, payload, nullptr);
  if (Frame* left = find(peers_[peer], number)) detach(*left);
}

MpiTransport::Frame* MpiTransport::find(Peer& peer, uint64_t number) {
  for (Frame& frame : peer.queue) {
    if (frame.number == number) return &frame;
  }
  return nullptr;
}

void MpiTransport::detach(Frame& frame) {
  const uint64_t left = frame.header.bytes - frame.taken;
  if (frame.own || left == 0) return;
  frame.own.reset(new char[left]);
  std::memcpy(frame.own.get(), frame.payload + frame.taken, left);
  frame.payload = frame.own.get();
  frame.payloadBegin = frame.taken;
}

void MpiTransport::detachPayload(int peer, const void* data, size_t bytes) {
  if (!isOurs()) return;
  const char* begin = static_cast<const char*>(data);
  for (Frame& frame : peers_[peer].queue) {
    if (!frame.own && frame.payload >= begin && frame.payload < begin + bytes) detach(frame);
  }
}

// Packs what is queued as far as the window goes.
void MpiTransport::pump(int peer) {
  Peer& to = peers_[peer];
  if (to.pumping || to.lost || to.trouble) return;
  to.pumping = true;
  std::vector<std::function<void()>> done;
  while (!to.queue.empty() && to.window > 0 && !to.trouble) {
    const Frame& first = to.queue.front();
    const uint64_t wanted = sizeof(FrameHeader) + first.header.bytes - first.taken;
    MpiPacket packet = newPacket(PacketKind::kData, std::min<uint64_t>(wanted, kPacketBytes / 2));
    fill(packet, to, done);
    to.window -= costOf(packet);
    post(peer, std::move(packet));
    for (const auto& onSent : done) onSent();
    done.clear();
  }
  to.pumping = false;
}

void MpiTransport::fill(MpiPacket& packet, Peer& peer, std::vector<std::function<void()>>& done) {
  while (!peer.queue.empty()) {
    Frame& frame = peer.queue.front();
    char* at = packet.memory.get() + packet.size;
    if (!frame.begun) {
      if (packet.room() < sizeof(FrameHeader)) return;
      std::memcpy(at, &frame.header, sizeof(FrameHeader));
      at += sizeof(FrameHeader);
      packet.size += sizeof(FrameHeader);
      frame.begun = true;
    }
    const uint64_t bytes = std::min<uint64_t>(packet.room(), frame.header.bytes - frame.taken);
    if (bytes > 0) std::memcpy(at, frame.payload + (frame.taken - frame.payloadBegin), bytes);
    packet.size += bytes;
    frame.taken += bytes;
    if (frame.taken < frame.header.bytes) return;
    if (frame.onSent) done.push_back(std::move(frame.onSent));
    peer.queue.pop_front();
  }
}

void MpiTransport::watch(int peer) {
  if (!isOurs() || peers_[peer].watched || peers_[peer].lost) return;
  peers_[peer].watched = true;
  watched_.push_back(peer);
  tell(peer, PacketKind::kWatch);
}

bool MpiTransport::progress(nanoseconds maxWait) {
  if (!isOurs()) return false;
  bool moved = step();
  if (!moved && maxWait.count() > 0) {
    waitReady(maxWait);
    moved = step();
  }
  return moved;
}

void MpiTransport::waitReady(nanoseconds maxWait) {
  if (::getpid() != creator_) return;
  const auto began = Clock::now();
  const auto until = began + maxWait;
  microseconds nap = kShortestSleep;
  for (;;) {
    const auto now = Clock::now();
    const bool patient = maxWait > nanoseconds(kPatientWait);
    if (!patient) port_.progress();
    std::unique_lock<std::mutex> mail(mailbox_.mutex);
    if (!mailbox_.arrived.empty() || mailbox_.rung || mailbox_.broken) return;
    if (now >= until) return;
    if (patient) {
      mailbox_.news.wait_until(mail, until);
    } else if (now - began < kYieldFor) {
      mail.unlock();
      std::this_thread::yield();
    } else {
      mailbox_.news.wait_until(mail, std::min(until, now + nap));
      nap = std::min(nap * 2, kLongestSleep);
    }
  }
}

void MpiTransport::wake() {
  if (::getpid() != creator_) return;
  std::lock_guard<std::mutex> mail(mailbox_.mutex);
  mailbox_.rung = true;
  mailbox_.news.notify_all();
}

bool MpiTransport::step() {
  port_.progress();
  bool moved = takeMail();
  std::vector<int> now;
  now.swap(readable_);
  for (const int peer : now) moved |= read(peer);
  lookForTheDead();
  now.clear();
  now.swap(troubled_);
  for (const int peer : now) {
    lose(peer, *peers_[peer].trouble, Receiver::Loss::kDied);
    moved = true;
  }
  return moved;
}

}  // namespace taco
