// Every link's all-reduce against a scalar reference: bit for bit, on every rank.
#include "tests/csrc/link/link_ranks.h"

namespace taco {
namespace {

using namespace taco::testing;

struct Case {
  DType dtype;
  size_t count;
  Reduction reduction;
  std::vector<Bytes> inputs;  // by rank
  Bytes expected;

  std::string describe() const {
    return str("all_reduce(", taco::name(reduction.op), ") of ", count, " ", taco::name(dtype));
  }
};

// `cheap`: bytes that are quick to make and to add up (int32 and uint8 sums only).
Case makeCase(DType dtype, ReduceOp op, size_t count, int ranks, bool cheap) {
  Case c{dtype, count, onlyLevel(op, dtype, ranks, 0.625), {}, {}};
  for (int rank = 0; rank < ranks; ++rank) {
    const auto seed = static_cast<uint32_t>(rank * 7919 + static_cast<int>(count));
    c.inputs.push_back(cheap ? fillBytes(count * elementBytes(dtype), seed)
                             : makeInput(dtype, count, seed));
  }
  if (!cheap) {
    c.expected = referenceReduce(c.inputs, c.reduction);
  } else if (dtype == DType::kInt32) {
    c.expected = wrappedSum<uint32_t>(c.inputs);
  } else {
    c.expected = wrappedSum<uint8_t>(c.inputs);
  }
  return c;
}

void runCases(LinkKind kind, int ranks, const std::vector<Case>& cases) {
  LinkGroup links(kind, ranks);
  runRanks(ranks, [&](int rank) {
    Operations operations;
    for (const Case& c : cases) {
      // Some aligned to lines, some to their size, some not at all; different ones on the ranks.
      const size_t misalignment = (static_cast<size_t>(rank) * 5 + c.count) % 17;
      Guarded data(c.dtype, c.inputs[static_cast<size_t>(rank)], misalignment);
      links[rank].allReduce(operations.next(OpKind::kAllReduce, c.dtype, c.count, c.reduction.op),
                            data.buffer(), c.reduction);
      data.check(c.expected, str(name(kind), ", ", c.describe()));
    }
  });
}

TEST_CASE("all-reduce: every dtype and op, around the widths of vectors") {
  for (const int ranks : {1, 2, 3, 5}) {
    std::vector<Case> cases;
    for (int d = 0; d < kNumDTypes; ++d) {
      for (int o = 0; o < kNumReduceOps; ++o) {
        const auto dtype = static_cast<DType>(d);
        const auto op = static_cast<ReduceOp>(o);
        if (whyUnsupported(op, dtype)) continue;
        for (const size_t count : {0, 1, 2, 15, 16, 17, 63, 64, 65}) {
          cases.push_back(makeCase(dtype, op, count, ranks, false));
        }
      }
    }
    for (const LinkKind kind : {LinkKind::kShmSmall, LinkKind::kMesh}) {
      runCases(kind, ranks, cases);
    }
  }
}

// Elements at which one algorithm or step ends and the next begins.
std::vector<size_t> boundaries(LinkKind kind, int ranks, size_t element) {
  const size_t p = static_cast<size_t>(ranks);
  std::vector<size_t> bytes = {ShmLink::kOneShotBytes, MeshLink::kOneShotBytes * 4};
  if (kind == LinkKind::kMesh) {
    bytes.insert(bytes.end(), {128 << 10, 256 << 10, 2 << 20});  // pieces of the pipeline
  } else {
    const size_t chunk = windowBytes(kind) / (p - 1) / 64 * 64 * p;
    bytes.insert(bytes.end(), {chunk, 2 * chunk, 3 * chunk});
    const size_t line = ShmSegment::Line::kDataBytes;
    bytes.insert(bytes.end(), {line, 2 * line, line * ShmSegment::Line::kPerSlot});
  }
  std::vector<size_t> counts;
  for (const size_t one : bytes) {
    const size_t count = one / element;
    counts.insert(counts.end(), {count - 1, count, count + 1});
    counts.push_back(count + 64 / element * p + 1);
  }
  return counts;
}

TEST_CASE("all-reduce: one element around every boundary") {
  for (int ranks = 2; ranks <= 5; ++ranks) {
    for (const LinkKind kind : kAllLinks) {
      std::vector<Case> cases;
      for (const DType dtype : {DType::kInt32, DType::kUInt8}) {
        for (const size_t count : boundaries(kind, ranks, elementBytes(dtype))) {
          cases.push_back(makeCase(dtype, ReduceOp::kSum, count, ranks, true));
        }
      }
      runCases(kind, ranks, cases);
    }
  }
}

TEST_CASE("all-reduce: elements of 2, 4, 8 and 16 bytes over many steps") {
  for (const int ranks : {2, 3, 5}) {
    std::vector<Case> cases;
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32, DType::kFloat64,
                              DType::kComplex128}) {
      const size_t count = (3 * kSmallSlotBytes + 200) / elementBytes(dtype) + 3;
      cases.push_back(makeCase(dtype, ReduceOp::kAvg, count, ranks, false));
      cases.push_back(makeCase(dtype, ReduceOp::kPremulSum, count + 1, ranks, false));
    }
    for (const LinkKind kind : {LinkKind::kShmSmall, LinkKind::kMesh}) {
      runCases(kind, ranks, cases);
    }
  }
}

// Pieces as a 2D all-reduce hands them over: in separate memory, each ready only when asked for.
class OrderedPieces : public Pieces {
 public:
  OrderedPieces(std::vector<Guarded>& pieces, std::vector<std::string>& order)
      : pieces_(pieces), order_(order) {}
  size_t count() const override { return pieces_.size(); }
  Buffer ready(size_t piece) override {
    order_.push_back(str("r", piece));
    return pieces_[piece].buffer();
  }
  void done(size_t piece) override {
    order_.push_back(str("d", piece));
    doneContent.push_back(pieces_[piece].content());
  }
  std::vector<Bytes> doneContent;

 private:
  std::vector<Guarded>& pieces_;
  std::vector<std::string>& order_;
};

TEST_CASE("all-reduce in pieces: uneven and empty ones, in the agreed order, reduced when done") {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const LinkKind kind : kAllLinks) {
      for (const std::vector<size_t>& counts :
           {std::vector<size_t>{5}, {0}, {5, 0}, {1, 3000, 7}, {40000, 40000, 1, 0, 5000, 17}}) {
        std::vector<Case> cases;
        for (const size_t count : counts) {
          cases.push_back(makeCase(DType::kInt32, ReduceOp::kSum, count, ranks, true));
        }
        std::vector<std::string> expectedOrder;
        for (size_t i = 0; i < counts.size() + kPiecesAhead; ++i) {
          if (i < counts.size()) expectedOrder.push_back(str("r", i));
          if (i >= kPiecesAhead) expectedOrder.push_back(str("d", i - kPiecesAhead));
        }
        LinkGroup links(kind, ranks);
        runRanks(ranks, [&](int rank) {
          Operations operations;
          std::vector<Guarded> data;
          for (const Case& c : cases) {
            data.emplace_back(c.dtype, c.inputs[static_cast<size_t>(rank)], 4);
          }
          std::vector<std::string> order;
          OrderedPieces pieces(data, order);
          links[rank].allReducePieces(operations.next(OpKind::kAllReduce, DType::kInt32, 1), pieces,
                                      cases[0].reduction);
          expect(order == expectedOrder, str(name(kind), ": another order"));
          for (size_t i = 0; i < cases.size(); ++i) {
            expect(pieces.doneContent[i] == cases[i].expected,
                   str(name(kind), ": piece ", i, " was not reduced when done() was called"));
            data[i].check(cases[i].expected, str(name(kind), ", piece ", i));
          }
        });
      }
    }
  }
}

}  // namespace
}  // namespace taco
