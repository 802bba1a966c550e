#include "csrc/mpi/mpi_port.h"

#include <cstring>

#include "csrc/base/log.h"

namespace taco {
namespace {

// Enough that a burst finds posted receives: 2 MiB a process.
constexpr int kReceives = 8;

// How often the thread looks: while traffic flows, and after a while without any.
constexpr Millis kBusyInterval{1};
constexpr Millis kIdleInterval{10};
constexpr int kBusyRounds = 100;

constexpr const char* kFinalized = "MPI has been finalised in this process";

}  // namespace

MpiPort::MpiPort(MpiApi& api) : api_(api) {
  for (int i = 0; i < kReceives; ++i) postReceive();
}

MpiPort::~MpiPort() { stop(); }

void MpiPort::open(uint64_t channel, MpiMailbox* mailbox) {
  std::lock_guard<std::mutex> lock(mutex_);
  open_[channel] = mailbox;
  const auto early = early_.find(channel);
  std::lock_guard<std::mutex> mail(mailbox->mutex);
  mailbox->broken = broken_;
  if (early != early_.end()) {
    mailbox->arrived = std::move(early->second);
    early_.erase(early);
  }
  startThread();
}

void MpiPort::close(uint64_t channel, const PacketHeader& lastWord, const std::string& body) {
  std::lock_guard<std::mutex> lock(mutex_);
  open_.erase(channel);
  closed_[channel] = {lastWord, body, {}};
}

MpiPacket MpiPort::newPacket(size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  return pool_.take(bytes);
}

void MpiPort::giveBack(MpiPacket packet) {
  if (packet.capacity != kPacketBytes) return;
  std::lock_guard<std::mutex> lock(mutex_);
  pool_.giveBack(std::move(packet));
}

void MpiPort::post(int destination, MpiPacket packet) {
  std::lock_guard<std::mutex> lock(mutex_);
  postLocked(destination, std::move(packet));
}

void MpiPort::postLocked(int destination, MpiPacket packet) {
  if (broken_) throw *broken_;
  if (stopping_) throw Error(ErrorCode::kSystem, kFinalized);
  const uint64_t channel = packet.header().channel;
  const MpiRequest request = api_.send(packet.memory.get(), packet.size, destination);
  sending_.push_back({request, std::move(packet), channel});
  busy_.store(true, std::memory_order_relaxed);
}

void MpiPort::postReceive() {
  Receiving next;
  next.packet = pool_.take(kPacketBytes);
  next.request = api_.receive(next.packet.memory.get(), next.packet.capacity);
  receiving_.push_back(std::move(next));
}

bool MpiPort::progress() {
  // Who finds the lock taken finds its mail as well: the other one puts it there.
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  rounds_.fetch_add(1, std::memory_order_relaxed);
  return progressLocked();
}

bool MpiPort::progressLocked() {
  if (broken_ || stopping_) return false;
  bool moved = false;
  try {
    // MPI fills posted receives in the order in which they were posted.
    while (!receiving_.empty()) {
      Receiving& first = receiving_.front();
      const MpiArrival arrival = api_.test(first.request);
      if (!arrival.done) break;
      MpiPacket packet = std::move(first.packet);
      receiving_.pop_front();
      postReceive();
      packet.size = arrival.bytes;
      packet.source = arrival.source;
      moved = true;
      deliver(std::move(packet));
    }
    for (auto it = sending_.begin(); it != sending_.end();) {
      if (!api_.test(it->request).done) {
        ++it;
        continue;
      }
      pool_.giveBack(std::move(it->packet));
      it = sending_.erase(it);
      moved = true;
    }
  } catch (const Error& why) {
    breakDown(why);
  }
  if (moved || !sending_.empty()) busy_.store(true, std::memory_order_relaxed);
  return moved;
}

void MpiPort::deliver(MpiPacket packet) {
  if (packet.size < sizeof(PacketHeader))
    return;  // not one of ours; nobody else has our communicator
  if (packet.size <= kSmallPacketBytes) {
    MpiPacket small = pool_.take(packet.size);
    std::memcpy(small.memory.get(), packet.memory.get(), packet.size);
    small.size = packet.size;
    small.source = packet.source;
    pool_.giveBack(std::move(packet));
    packet = std::move(small);
  }
  const uint64_t channel = packet.header().channel;
  if (const auto open = open_.find(channel); open != open_.end()) {
    std::lock_guard<std::mutex> mail(open->second->mutex);
    open->second->arrived.push_back(std::move(packet));
    open->second->news.notify_all();
    return;
  }
  const auto closed = closed_.find(channel);
  if (closed == closed_.end()) {
    early_[channel].push_back(std::move(packet));
    return;
  }
  const PacketKind kind = packet.header().kind;
  const int source = packet.source;
  pool_.giveBack(std::move(packet));
  if (kind == PacketKind::kData || kind == PacketKind::kWatch) answer(source, closed->second);
}

void MpiPort::answer(int destination, Closed& closed) {
  if (!closed.told.insert(destination).second) return;
  MpiPacket packet = pool_.take(sizeof(PacketHeader) + closed.body.size());
  packet.header() = closed.lastWord;
  std::memcpy(packet.body(), closed.body.data(), closed.body.size());
  packet.size += closed.body.size();
  postLocked(destination, std::move(packet));
}

void MpiPort::breakDown(const Error& why) {
  broken_ = why;
  for (auto& [channel, mailbox] : open_) {
    std::lock_guard<std::mutex> mail(mailbox->mutex);
    mailbox->broken = why;
    mailbox->news.notify_all();
  }
}

void MpiPort::flush(uint64_t channel, const Deadline& deadline) {
  for (;;) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      progressLocked();
      bool left = false;
      for (const Sending& one : sending_) left |= one.channel == channel;
      if (!left || broken_ || stopping_) return;
    }
    if (deadline.expired()) return;
    std::this_thread::sleep_for(deadline.remaining(std::chrono::microseconds(100)));
  }
}

void MpiPort::startThread() {
  if (thread_.joinable() || stopping_) return;
  thread_ = std::thread([this] { run(); });
}

void MpiPort::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  uint64_t seen = 0;
  int quiet = 0;
  while (!stopping_ && !broken_) {
    stop_.wait_for(lock, quiet < kBusyRounds ? kBusyInterval : kIdleInterval);
    if (stopping_) return;
    if (busy_.exchange(false, std::memory_order_relaxed))
      quiet = 0;
    else
      ++quiet;
    const uint64_t rounds = rounds_.load(std::memory_order_relaxed);
    if (rounds != seen) {
      seen = rounds;  // somebody else does it
      continue;
    }
    progressLocked();
  }
}

void MpiPort::stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
    stop_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  std::lock_guard<std::mutex> lock(mutex_);
  breakDown(Error(ErrorCode::kSystem, kFinalized));
  for (Receiving& one : receiving_) {
    try {
      api_.cancelReceive(one.request);
    } catch (const Error& why) {
      log(LogLevel::kDebug, why.what());
    }
    // One may just be being filled.
    keepForever(std::shared_ptr<char[]>(std::move(one.packet.memory)));
  }
  receiving_.clear();
  for (Sending& one : sending_) keepForever(std::shared_ptr<char[]>(std::move(one.packet.memory)));
  sending_.clear();
}

}  // namespace taco
