#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

namespace taco {

// What goes over MPI. A frame's header and payload are a stream of bytes to MPI's users, cut into
// packets; a packet is one message of MPI.
enum class PacketKind : uint32_t {
  kData = 1,  // a stretch of the stream: frames, whole or in part; a frame's header is never cut
  kCredit,    // "I have read `credit` bytes of what you sent"
  kWatch,     // "tell me when you end"
  kGoodbye,   // the end of the stream, on purpose
  kFail,      // the sender has failed; the body is failMessage()'s
  kCut,       // the sender has ended without a goodbye
};

struct PacketHeader {
  uint64_t channel = 0;  // which group and lane, of which making of it: random
  PacketKind kind = PacketKind::kData;
  int32_t rank = -1;    // of the sender, in the group
  uint64_t credit = 0;  // kCredit
};
static_assert(std::is_trivially_copyable_v<PacketHeader> && sizeof(PacketHeader) == 24);

// A frame of a power of two of bytes fits into whole packets with its header. Of 64, 128, 256 and
// 512 KiB, measured for all-reduces of 4 and 32 MiB between 2 ranks over OpenMPI and MPICH, 256 was
// never much slower than the best; the others were, with one of the two.
inline constexpr size_t kSmallPacketBytes = 4 << 10;
inline constexpr size_t kPacketBytes = (256 << 10) + kSmallPacketBytes;

// One packet's memory. MPI may read and write it for as long as it likes, whatever became of the
// operation it belongs to: the user's memory is never handed to MPI, because a posted send cannot
// be taken back.
struct MpiPacket {
  std::unique_ptr<char[]> memory;
  size_t capacity = 0;
  size_t size = 0;  // bytes in use, the PacketHeader included
  int source = -1;  // of an arrived one: rank in MPI_COMM_WORLD

  PacketHeader& header() { return *reinterpret_cast<PacketHeader*>(memory.get()); }
  const PacketHeader& header() const {
    return *reinterpret_cast<const PacketHeader*>(memory.get());
  }
  char* body() { return memory.get() + sizeof(PacketHeader); }
  const char* body() const { return memory.get() + sizeof(PacketHeader); }
  size_t bodyBytes() const { return size - sizeof(PacketHeader); }
  size_t room() const { return capacity - size; }
};

// Memory that MPI may still write to or read from when nobody waits for it any more: it stays.
inline void keepForever(std::shared_ptr<void> memory) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<void>>();
  std::lock_guard<std::mutex> lock(mutex);
  kept->push_back(std::move(memory));
}

// How far a sender may be ahead of what its receiver has read.
inline constexpr int64_t kWindowBytes = 2 << 20;

// What a packet takes of the window: its bytes, and something besides, so that small ones are
// bounded too.
inline int64_t costOf(const MpiPacket& packet) {
  return static_cast<int64_t>(packet.bodyBytes()) + (1 << 10);
}

// Large packets are used again: fresh ones would cost a page fault every 4 KiB.
class PacketPool {
 public:
  MpiPacket take(size_t bytes) {
    MpiPacket packet;
    packet.capacity = bytes <= kSmallPacketBytes ? kSmallPacketBytes : kPacketBytes;
    if (packet.capacity == kPacketBytes && !spare_.empty()) {
      packet.memory = std::move(spare_.back());
      spare_.pop_back();
    } else {
      packet.memory.reset(new char[packet.capacity]);
    }
    packet.header() = PacketHeader();
    packet.size = sizeof(PacketHeader);
    return packet;
  }

  void giveBack(MpiPacket packet) {
    if (packet.capacity == kPacketBytes && spare_.size() < kMostSpare) {
      spare_.push_back(std::move(packet.memory));
    }
  }

 private:
  static constexpr size_t kMostSpare = 32;
  std::vector<std::unique_ptr<char[]>> spare_;
};

}  // namespace taco
