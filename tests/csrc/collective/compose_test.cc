#include "csrc/collective/compose.h"

#include <atomic>

#include "tests/csrc/link/link_ranks.h"

namespace taco {
namespace {

using namespace taco::testing;

const std::vector<size_t> kCounts = {0, 1, 2, 5, 64, 65, 4099, 100003};

TEST_CASE("gather and scatter: every root, even and uneven") {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const LinkKind kind : kAllLinks) {
      LinkGroup links(kind, ranks);
      runRanks(ranks, [&](int rank) {
        Operations operations;
        for (int root = 0; root < ranks; ++root) {
          for (const size_t base : kCounts) {
            for (const bool uneven : {false, true}) {
              auto content = [&](size_t r) {
                return fillBytes(uneven ? base / (r + 1) : base, base * 10 + r);
              };
              const size_t self = static_cast<size_t>(rank);
              const std::string what =
                  str(" of ", base, " bytes at root ", root, " over ", name(kind));
              Guarded in(DType::kUInt8, content(self), self);
              std::vector<Guarded> places;
              std::vector<Buffer> outs;
              std::vector<Guarded> contents;
              std::vector<ConstBuffer> ins;
              if (rank == root) {
                for (size_t r = 0; r < static_cast<size_t>(ranks); ++r) {
                  places.emplace_back(DType::kUInt8, content(r).size(), r);
                  contents.emplace_back(DType::kUInt8, content(r), r + 1);
                }
                for (Guarded& one : places) outs.push_back(one.buffer());
                for (Guarded& one : contents) ins.push_back(one.buffer());
              }
              gather(links[rank], operations.next(OpKind::kGather, DType::kUInt8, 0, root),
                     in.buffer(), outs, root);
              in.check(content(self), "gather" + what + ": the input");
              for (size_t r = 0; r < places.size(); ++r)
                places[r].check(content(r), "gather" + what);

              Guarded out(DType::kUInt8, content(self).size(), 3);
              scatter(links[rank], operations.next(OpKind::kScatter, DType::kUInt8, 0, root), ins,
                      out.buffer(), root);
              out.check(content(self), "scatter" + what);
              for (size_t r = 0; r < contents.size(); ++r) {
                contents[r].check(content(r), "scatter" + what + ": the input");
              }
            }
          }
        }
      });
    }
  }
}

TEST_CASE("reduce: every root, in place and not, nothing is written but the root's output") {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const LinkKind kind : kAllLinks) {
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt64}) {
        std::vector<std::vector<Bytes>> inputs;
        std::vector<Bytes> expected;
        const Reduction reduction = onlyLevel(ReduceOp::kAvg, dtype, ranks);
        for (const size_t count : kCounts) {
          if (count > 10000 && (ranks == 4 || dtype != DType::kFloat32)) continue;
          inputs.emplace_back();
          for (int rank = 0; rank < ranks; ++rank) {
            inputs.back().push_back(makeInput(dtype, count, static_cast<uint32_t>(rank)));
          }
          expected.push_back(referenceReduce(inputs.back(), reduction));
        }
        LinkGroup links(kind, ranks);
        runRanks(ranks, [&](int rank) {
          Operations operations;
          for (size_t i = 0; i < inputs.size(); ++i) {
            const Bytes& input = inputs[i][static_cast<size_t>(rank)];
            for (int root = 0; root < ranks; ++root) {
              for (const bool inPlace : {false, true}) {
                const std::string what = str("reduce ", i, " of ", taco::name(dtype), " to ", root,
                                             " over ", name(kind), inPlace ? ", in place" : "");
                Guarded in(dtype, input, static_cast<size_t>(rank));
                const Bytes old = fillBytes(input.size(), 9);
                Guarded out(dtype, old, 5);
                reduceToRoot(links[rank],
                             operations.next(OpKind::kReduce, dtype, in.buffer().count,
                                             ReduceOp::kAvg, root),
                             in.buffer(), inPlace ? in.buffer() : out.buffer(), reduction, root);
                const bool isRoot = rank == root;
                in.check(isRoot && inPlace ? expected[i] : input, what + ": the input");
                out.check(isRoot && !inPlace ? expected[i] : old, what);
              }
            }
          }
        });
      }
    }
  }
}

TEST_CASE("nobody passes a barrier before the last has come") {
  for (const LinkKind kind : kAllLinks) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      LinkGroup links(kind, ranks);
      std::atomic<int> arrived{0};
      runRanks(ranks, [&](int rank) {
        Operations operations;
        for (int round = 1; round <= 50; ++round) {
          ++arrived;
          barrier(links[rank], operations.next(OpKind::kBarrier, DType::kInt8, 1));
          expect(arrived.load() >= round * ranks, "passed too early");
          barrier(links[rank], operations.next(OpKind::kBarrier, DType::kInt8, 1));
        }
      });
    }
  }
}

}  // namespace
}  // namespace taco
