// All-reduces in memory that all members see, beside ordinary memory.
#include <sys/statvfs.h>

#include "tests/csrc/link/link_ranks.h"

namespace taco {
namespace {

using namespace taco::testing;
using Catch::Matchers::ContainsSubstring;

constexpr size_t kBlockBytes = 3 << 20;

// A rank's view of the group, with one block of memory.
struct Rank {
  Rank(Link& theLink, int theRank) : link(theLink), rank(theRank) {
    std::string whyNot;
    block = link.sharedMemory(operations.next(OpKind::kSharedEmpty, DType::kUInt8, kBlockBytes),
                              kBlockBytes, &whyNot);
    expect(block != nullptr, whyNot);
  }

  Buffer place(size_t offset, const Bytes& input) {
    char* const begin = static_cast<char*>(block.get()) + offset;
    std::memcpy(begin, input.data(), input.size());
    return Buffer{begin, input.size() / 4, DType::kInt32};
  }
  void sum(Buffer buffer) {
    link.allReduce(
        operations.next(OpKind::kAllReduce, DType::kInt32, buffer.count, ReduceOp::kSum), buffer,
        onlyLevel(ReduceOp::kSum, DType::kInt32, link.size()));
  }

  Link& link;
  int rank;
  Operations operations;
  std::shared_ptr<void> block;
};

std::vector<Bytes> inputsOf(int ranks, size_t count) {
  std::vector<Bytes> inputs;
  for (int r = 0; r < ranks; ++r) inputs.push_back(fillBytes(count * 4, 31 * r + count));
  return inputs;
}

TEST_CASE("shared memory: sums in it, in ordinary memory, and in both") {
  for (const int ranks : {2, 3, 5}) {
    for (const LinkKind kind : {LinkKind::kShmSmall, LinkKind::kShmYield}) {
      LinkGroup links(kind, ranks);
      runRanks(ranks, [&](int rank) {
        Rank self(links[rank], rank);
        size_t at = 0;
        for (const size_t count :
             {1, 2048, 2049, 2050, 4096, 12289, 65535, 131072, 200001, 262144, 262145}) {
          const std::vector<Bytes> inputs = inputsOf(ranks, count);
          const Bytes expected = wrappedSum<uint32_t>(inputs);
          // 0: all in shared memory, at places that differ; 1: all but rank 0; 2: only rank 0.
          for (int mix = 0; mix < 3; ++mix) {
            const bool shared = mix == 0 || (mix == 1) == (rank != 0);
            const size_t offset = (++at * 12 + static_cast<size_t>(rank) * 4096) % 100000;
            const Bytes& input = inputs[static_cast<size_t>(rank)];
            Guarded ordinary(DType::kInt32, input);
            const Buffer buffer = shared ? self.place(offset, input) : ordinary.buffer();
            self.sum(buffer);
            expect(std::memcmp(buffer.data, expected.data(), expected.size()) == 0,
                   str(count, " elements, mix ", mix));
          }
        }
      });
    }
  }
}

TEST_CASE("shared memory: buffers that share it touch nothing around them") {
  LinkGroup links(LinkKind::kShmYield, 3);
  runRanks(3, [&](int rank) {
    Rank self(links[rank], rank);
    char* const begin = static_cast<char*>(self.block.get());
    std::memset(begin, 0x5a, kBlockBytes);
    const std::vector<Bytes> inputs = inputsOf(3, 10001);
    const Bytes expected = wrappedSum<uint32_t>(inputs);
    // Right at the block's end, and at its begin.
    for (const size_t offset : {kBlockBytes - 40004, size_t{0}}) {
      self.sum(self.place(offset, inputs[static_cast<size_t>(rank)]));
      expect(std::memcmp(begin + offset, expected.data(), expected.size()) == 0, "wrong sum");
    }
    for (size_t i = 40004; i < kBlockBytes - 40004; ++i) {
      expect(begin[i] == 0x5a, str("byte ", i, " was written"));
    }
  });
}

uint64_t freeBytes() {
  struct statvfs facts {};
  REQUIRE(::statvfs("/dev/shm", &facts) == 0);
  return facts.f_bfree * facts.f_bsize;
}

TEST_CASE("shared memory: what all have given back is free again, and outlives the link") {
  constexpr size_t kLarge = 4 << 20;
  auto links = std::make_unique<LinkGroup>(LinkKind::kShmYield, 2);
  std::vector<std::shared_ptr<void>> last(2);
  const uint64_t before = freeBytes();
  runRanks(2, [&](int rank) {
    Operations operations;
    Link& link = (*links)[rank];
    for (int i = 0; i < 50; ++i) {  // 400 MB, if nothing came back
      std::string whyNot;
      last[static_cast<size_t>(rank)] =
          link.sharedMemory(operations.next(OpKind::kSharedEmpty, DType::kUInt8, kLarge), kLarge,
                            &whyNot);
      expect(last[static_cast<size_t>(rank)] != nullptr, whyNot);
    }
  });
  // Other tests use /dev/shm at the same time, but not that much of it.
  CHECK(before - std::min(before, freeBytes()) < (200ull << 20));
  links.reset();
  std::memset(last[0].get(), 1, kLarge);
  CHECK(static_cast<char*>(last[0].get())[kLarge - 1] == 1);
}

TEST_CASE("shared memory: more than there is room for is refused on all ranks, with the reason") {
  LinkGroup links(LinkKind::kShmYield, 3);
  runRanks(3, [&](int rank) {
    Operations operations;
    std::string whyNot;
    const size_t tooMuch = 1ull << 44;
    const auto none = links[rank].sharedMemory(
        operations.next(OpKind::kSharedEmpty, DType::kUInt8, tooMuch), tooMuch, &whyNot);
    expect(none == nullptr, "there was room");
    expect(whyNot.find("/dev/shm") != std::string::npos, whyNot);
    Rank self(links[rank], rank);  // and there is room for less
  });
}

TEST_CASE("shared memory: ranks that ask for different sizes tell each other") {
  LinkGroup links(LinkKind::kShmYield, 2);
  const Outcomes outcomes = tryRanks(2, [&](int rank) {
    Operations operations;
    std::string whyNot;
    const size_t bytes = rank == 0 ? 4096 : 8192;
    links[rank].sharedMemory(operations.next(OpKind::kSharedEmpty, DType::kUInt8, bytes), bytes,
                             &whyNot);
  });
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(outcomes.error(rank).code() == ErrorCode::kMismatch);
    CHECK_THAT(outcomes.what(rank), ContainsSubstring("shared_empty of 4096 uint8") &&
                                        ContainsSubstring("shared_empty of 8192 uint8"));
  }
}

TEST_CASE("shared memory: a link without it says so") {
  LinkGroup links(LinkKind::kMesh, 2);
  runRanks(2, [&](int rank) {
    Operations operations;
    std::string whyNot;
    expect(links[rank].sharedMemory(operations.next(OpKind::kSharedEmpty, DType::kUInt8, 64), 64,
                                    &whyNot) == nullptr,
           "TCP shares memory");
    expect(whyNot.find("share no memory") != std::string::npos, whyNot);
  });
}

}  // namespace
}  // namespace taco
