#pragma once

// One group of links of any kind, for ranks that are threads; and buffers with something around
// them.

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "csrc/base/abort.h"
#include "csrc/link/mesh_link.h"
#include "csrc/link/shm_link.h"
#include "csrc/link/solo_link.h"
#include "csrc/topology/key_value_store.h"
#include "tests/csrc/data/reduce_inputs.h"
#include "tests/csrc/ranks.h"
#include "tests/csrc/transport/tcp_ranks.h"

namespace taco::testing {

enum class LinkKind {
  kShmSpin,   // shared memory, as with cores to spare
  kShmYield,  // shared memory, as with more ranks than cores
  kShmSmall,  // shared memory with small slots: many steps
  kMesh,      // TCP
};

inline const char* name(LinkKind kind) {
  switch (kind) {
    case LinkKind::kShmSpin:
      return "shm, spinning";
    case LinkKind::kShmYield:
      return "shm, yielding";
    case LinkKind::kShmSmall:
      return "shm, small slots";
    case LinkKind::kMesh:
      return "mesh";
  }
  return "?";
}

inline constexpr LinkKind kAllLinks[] = {LinkKind::kShmSpin, LinkKind::kShmYield,
                                         LinkKind::kShmSmall, LinkKind::kMesh};

inline constexpr size_t kSlotBytes = 512 << 10;
inline constexpr size_t kSmallSlotBytes = 16 << 10;

// How much of a slot a shared-memory link of this kind uses.
inline size_t windowBytes(LinkKind kind) {
  switch (kind) {
    case LinkKind::kShmSpin:
      return 256 << 10;
    case LinkKind::kShmYield:
      return kSlotBytes;
    case LinkKind::kShmSmall:
      return kSmallSlotBytes;
    case LinkKind::kMesh:
      break;
  }
  return 0;
}

inline std::unique_ptr<Link> makeShmLink(LinkKind kind, const std::string& key,
                                         KeyValueStore& store, std::vector<int> members, int member,
                                         const AbortSignal& abort) {
  const ShmSegment::Layout layout{static_cast<int>(members.size()),
                                  kind == LinkKind::kShmSmall ? kSmallSlotBytes : kSlotBytes};
  std::string whyNot;
  auto segment = ShmSegment::meet(key, store, layout, members, member,
                                  Deadline::after(Millis(60000)), &whyNot);
  expect(segment != nullptr, "no segment: " + whyNot);
  return std::make_unique<ShmLink>(
      std::move(segment), std::move(members), member,
      kind == LinkKind::kShmSpin ? WaitPolicy::coresToSpare() : WaitPolicy::oversubscribed(),
      abort);
}

class LinkGroup {
 public:
  LinkGroup(LinkKind kind, int size) {
    links_.resize(static_cast<size_t>(size));
    for (int rank = 0; rank < size; ++rank) aborts_.push_back(std::make_unique<AbortSignal>());
    std::vector<int> members;
    for (int rank = 0; rank < size; ++rank) members.push_back(rank);
    if (size == 1) {
      links_[0] = std::make_unique<SoloLink>();
    } else if (kind == LinkKind::kMesh) {
      auto transports = makeTransports(size);
      for (size_t rank = 0; rank < links_.size(); ++rank) {
        links_[rank] = std::make_unique<MeshLink>(
            std::make_shared<Mesh>(std::move(transports[rank]), *aborts_[rank]), members);
      }
    } else {
      MemoryStore store;
      runRanks(size, [&](int rank) {
        links_[static_cast<size_t>(rank)] =
            makeShmLink(kind, "segment", store, members, rank, *aborts_[static_cast<size_t>(rank)]);
      });
    }
  }

  Link& operator[](int rank) { return *links_[static_cast<size_t>(rank)]; }
  AbortSignal& abort(int rank) { return *aborts_[static_cast<size_t>(rank)]; }
  void leave(int rank) { links_[static_cast<size_t>(rank)].reset(); }

 private:
  std::vector<std::unique_ptr<AbortSignal>> aborts_;
  std::vector<std::unique_ptr<Link>> links_;
};

// `count` elements that begin `misalignment` bytes after a multiple of 64, between bytes that must
// stay.
class Guarded {
 public:
  Guarded(DType dtype, size_t count, size_t misalignment = 0)
      : bytes_(count * elementBytes(dtype)),
        memory_(bytes_ + 2 * kGuard + 64 + misalignment, kMark) {
    const size_t base = reinterpret_cast<uintptr_t>(memory_.data()) + kGuard;
    begin_ = kGuard + (64 - base % 64) % 64 + misalignment;
    buffer_ = Buffer{memory_.data() + begin_, count, dtype};
  }
  Guarded(DType dtype, const Bytes& content, size_t misalignment = 0)
      : Guarded(dtype, content.size() / elementBytes(dtype), misalignment) {
    if (!content.empty()) std::memcpy(buffer_.data, content.data(), content.size());
  }
  Guarded(Guarded&&) = default;  // the vector's memory stays where it is

  const Buffer& buffer() const { return buffer_; }
  Bytes content() const {
    const auto first = memory_.begin() + static_cast<ptrdiff_t>(begin_);
    return Bytes(first, first + static_cast<ptrdiff_t>(bytes_));
  }

  // Throws unless the content is `expected` and nothing around it was touched.
  void check(const Bytes& expected, const std::string& what) const {
    for (size_t i = 0; i < memory_.size(); ++i) {
      if (i == begin_) i += bytes_;
      if (memory_[i] == kMark) continue;
      throw std::runtime_error(str(what, ": wrote outside of the buffer, at byte ",
                                   static_cast<int64_t>(i) - static_cast<int64_t>(begin_), " of ",
                                   bytes_));
    }
    expect(expected.size() == bytes_, what + ": the test expects another size");
    if (bytes_ == 0 || std::memcmp(buffer_.data, expected.data(), bytes_) == 0) return;
    size_t at = 0;
    while (memory_[begin_ + at] == expected[at]) ++at;
    throw std::runtime_error(str(what, ": wrong at byte ", at, " of ", bytes_, ": ",
                                 static_cast<int>(memory_[begin_ + at]), " instead of ",
                                 static_cast<int>(expected[at])));
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr uint8_t kMark = 0xA5;
  size_t bytes_;
  Bytes memory_;
  size_t begin_;
  Buffer buffer_;
};

// Any bytes, cheaply: for data that are only moved, or added up as integers.
inline Bytes fillBytes(size_t bytes, uint64_t seed) {
  Bytes data(bytes);
  uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15ull;
  for (size_t at = 0; at < bytes; at += 8) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    const uint64_t mixed = x * 0x2545F4914F6CDD1Dull;
    std::memcpy(data.data() + at, &mixed, std::min<size_t>(8, bytes - at));
  }
  return data;
}

// The sum of int32 or uint8 elements, which wraps around.
template <typename T>
Bytes wrappedSum(const std::vector<Bytes>& inputs) {
  Bytes sum(inputs[0].size());
  for (size_t at = 0; at + sizeof(T) <= sum.size(); at += sizeof(T)) {
    T total = 0;
    for (const Bytes& input : inputs) {
      T one;
      std::memcpy(&one, input.data() + at, sizeof(T));
      total = static_cast<T>(total + one);
    }
    std::memcpy(sum.data() + at, &total, sizeof(T));
  }
  return sum;
}

// Counts the operations of a group: all ranks count alike.
class Operations {
 public:
  explicit Operations(Millis timeout = Millis(60000)) : timeout_(timeout) {}

  OpContext next(OpKind kind, DType dtype, size_t count, int root = -1) {
    OpContext op;
    op.call.sequence = ++sequence_;
    op.call.op = kind;
    op.call.dtype = dtype;
    op.call.count = count;
    op.call.root = root;
    op.deadline = Deadline::after(timeout_);
    return op;
  }
  OpContext next(OpKind kind, DType dtype, size_t count, ReduceOp reduceOp, int root = -1) {
    OpContext op = next(kind, dtype, count, root);
    op.call.hasReduceOp = 1;
    op.call.reduceOp = reduceOp;
    return op;
  }

 private:
  Millis timeout_;
  uint64_t sequence_ = 0;
};

}  // namespace taco::testing
