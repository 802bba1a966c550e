#include "tests/csrc/link/link_ranks.h"

namespace taco {
namespace {

using namespace taco::testing;

std::vector<size_t> byteCounts(LinkKind kind) {
  std::vector<size_t> around = {MeshLink::kTreeBytes, 128 << 10};
  if (kind == LinkKind::kMesh) {
    around.insert(around.end(), {256 << 10, 2 << 20});  // one piece, pieces of a sixteenth
  } else {
    around.insert(around.end(), {windowBytes(kind), 2 * windowBytes(kind)});
  }
  std::vector<size_t> counts = {0, 1, 2, 63, 64, 65, 4095};
  for (const size_t one : around) counts.insert(counts.end(), {one - 1, one, one + 1});
  return counts;
}

TEST_CASE("broadcast: every root, around every boundary") {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const LinkKind kind : kAllLinks) {
      const std::vector<size_t> counts = byteCounts(kind);
      std::vector<Bytes> contents;
      for (size_t i = 0; i < counts.size(); ++i) contents.push_back(fillBytes(counts[i], i));
      LinkGroup links(kind, ranks);
      runRanks(ranks, [&](int rank) {
        Operations operations;
        for (int root = 0; root < ranks; ++root) {
          for (size_t i = 0; i < counts.size(); ++i) {
            const size_t misalignment = (static_cast<size_t>(rank) + i) % 8;
            Guarded data(DType::kUInt8, rank == root ? contents[i] : fillBytes(counts[i], 12345),
                         misalignment);
            links[rank].broadcast(
                operations.next(OpKind::kBroadcast, DType::kUInt8, counts[i], root), data.buffer(),
                root);
            data.check(contents[i],
                       str("broadcast of ", counts[i], " bytes from ", root, " over ", name(kind)));
          }
        }
      });
    }
  }
}

TEST_CASE("broadcast: elements of every size") {
  for (const LinkKind kind : kAllLinks) {
    LinkGroup links(kind, 3);
    runRanks(3, [&](int rank) {
      Operations operations;
      for (int d = 0; d < kNumDTypes; ++d) {
        const auto dtype = static_cast<DType>(d);
        const Bytes content = fillBytes(30001 * elementBytes(dtype), static_cast<uint64_t>(d));
        const int root = d % 3;
        Guarded data(dtype, rank == root ? content : Bytes(content.size()));
        links[rank].broadcast(operations.next(OpKind::kBroadcast, dtype, 30001, root),
                              data.buffer(), root);
        data.check(content, str("broadcast of ", taco::name(dtype), " over ", name(kind)));
      }
    });
  }
}

}  // namespace
}  // namespace taco
