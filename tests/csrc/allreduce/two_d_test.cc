// The 2D all-reduce over shared memory inside the nodes and TCP between them, with ranks as
// threads, against a reference that reduces in exactly its order: nodes in rank order, then the
// nodes.
#include "csrc/allreduce/two_d.h"

#include "tests/csrc/allreduce/grid_ranks.h"

namespace taco {
namespace {

using namespace taco::testing;

struct Case {
  DType dtype;
  ReduceOp op;
  size_t count;
  size_t pieceBytes;
  TwoDReductions reductions;
  std::vector<Bytes> inputs;
  Bytes expected;
};

Case makeCase(const GridRanks& group, DType dtype, ReduceOp op, size_t count, size_t pieceBytes) {
  Case c{dtype,
         op,
         count,
         pieceBytes,
         {firstLevel(op, dtype, 0.375), lastLevel(op, dtype, group.size())},
         {},
         {}};
  for (int rank = 0; rank < group.size(); ++rank) {
    c.inputs.push_back(makeInput(dtype, count, static_cast<uint32_t>(rank * 31 + 1)));
  }
  std::vector<Bytes> ofNodes;
  for (const auto& node : group.nodes) {
    std::vector<Bytes> inputs;
    for (const int rank : node) inputs.push_back(c.inputs[static_cast<size_t>(rank)]);
    ofNodes.push_back(referenceReduce(inputs, c.reductions.intra));
  }
  c.expected = referenceReduce(ofNodes, c.reductions.inter);
  return c;
}

void runCases(GridRanks& group, const std::vector<Case>& cases, uint64_t firstSequence) {
  runRanks(group.size(), [&](int rank) {
    uint64_t sequence = firstSequence;
    for (const Case& c : cases) {
      OpContext op;
      op.call.sequence = ++sequence;
      op.call.op = OpKind::kAllReduce;
      op.call.count = c.count;
      op.call.dtype = c.dtype;
      op.deadline = Deadline::after(Millis(60000));
      Guarded data(c.dtype, c.inputs[static_cast<size_t>(rank)],
                   (static_cast<size_t>(rank) * 3) % 16);
      allReduce2d(op, data.buffer(), c.reductions, group.links(rank), c.pieceBytes);
      data.check(c.expected, str("2d all_reduce(", taco::name(c.op), ") of ", c.count, " ",
                                 taco::name(c.dtype), " in pieces of ", c.pieceBytes, " bytes"));
    }
  });
}

const std::vector<std::vector<std::vector<int>>> kGrids = {
    {{0}, {1}},
    {{0, 1}, {2, 3}},
    {{0, 2}, {1, 3}},
    {{0, 1, 2}, {3, 4, 5}},
    {{0, 1}, {2, 3}, {4, 5}},
    {{0}, {1, 2}},
    {{0, 1, 2}, {3}, {4, 5}},
    {{0, 3, 4}, {1, 2}},
};

TEST_CASE("2d: every grid, dtype and op") {
  for (const auto& nodes : kGrids) {
    for (const LinkKind intra : {LinkKind::kShmYield, LinkKind::kMesh}) {
      GridRanks group(nodes, intra);
      std::vector<Case> cases;
      for (int d = 0; d < kNumDTypes; ++d) {
        for (int o = 0; o < kNumReduceOps; ++o) {
          const auto dtype = static_cast<DType>(d);
          const auto op = static_cast<ReduceOp>(o);
          if (whyUnsupported(op, dtype)) continue;
          for (const size_t count : {1, 97}) {
            cases.push_back(makeCase(group, dtype, op, count, 128));
          }
        }
      }
      runCases(group, cases, 0);
    }
  }
}

TEST_CASE("2d: one element around every piece") {
  for (const auto& nodes : kGrids) {
    GridRanks group(nodes, LinkKind::kShmSmall);
    std::vector<Case> cases;
    for (const DType dtype : {DType::kBFloat16, DType::kFloat32, DType::kUInt8}) {
      for (const size_t pieceBytes : {1, 64, 5000}) {
        const size_t piece = std::max<size_t>(1, pieceBytes / elementBytes(dtype));
        for (const size_t pieces : {1, 2, 3, 4}) {
          for (const size_t count : {pieces * piece - 1, pieces * piece, pieces * piece + 1}) {
            cases.push_back(makeCase(group, dtype, ReduceOp::kAvg, count, pieceBytes));
          }
        }
      }
    }
    runCases(group, cases, 0);
  }
}

TEST_CASE("2d: eight and four slots on two nodes") {
  GridRanks group({{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11}}, LinkKind::kShmYield);
  CHECK(group.columns == 4);
  std::vector<Case> cases;
  for (const size_t count : {1, 3, 4, 5, 4000, 100003}) {
    cases.push_back(makeCase(group, DType::kFloat32, ReduceOp::kSum, count, 64 << 10));
    cases.push_back(makeCase(group, DType::kBFloat16, ReduceOp::kAvg, count, 64 << 10));
  }
  runCases(group, cases, 0);
}

TEST_CASE("2d: half types round once at each level") {
  GridRanks group({{0, 1}, {2, 3}}, LinkKind::kShmYield);
  // 256 + 1 is 256 in bfloat16 and 1 + 1 is 2; each alone would also be lost in a flat sum of four.
  Case c = makeCase(group, DType::kBFloat16, ReduceOp::kSum, 1, 1024);
  const float values[] = {256.0f, 1.0f, 1.0f, 1.0f};
  for (size_t rank = 0; rank < 4; ++rank) {
    const uint16_t bits = ReferenceBFloat16::encode(values[rank]);
    std::memcpy(c.inputs[rank].data(), &bits, 2);
  }
  const uint16_t expected = ReferenceBFloat16::encode(258.0f);  // 256 (257 rounded) + 2
  std::memcpy(c.expected.data(), &expected, 2);
  runCases(group, {c}, 0);
}

TEST_CASE("2d: a rank that fails inside its node ends the other nodes as well") {
  for (const int failing : {0, 3}) {
    GridRanks group({{0, 1}, {2, 3}}, LinkKind::kShmYield);
    const Outcomes outcomes = tryRanks(4, [&](int rank) {
      std::vector<float> data(100000, 1.0f);
      OpContext op;
      op.call.op = OpKind::kAllReduce;
      op.deadline = Deadline::after(Millis(60000));
      const Buffer buffer{data.data(), data.size(), DType::kFloat32};
      const TwoDReductions reductions{firstLevel(ReduceOp::kSum, DType::kFloat32),
                                      lastLevel(ReduceOp::kSum, DType::kFloat32, 4)};
      const TwoDLinks links = group.links(rank);
      try {
        for (op.call.sequence = 1; op.call.sequence < 6; ++op.call.sequence) {
          if (rank == failing && op.call.sequence == 3) {
            throw Error(ErrorCode::kSystem, "no more memory");
          }
          allReduce2d(op, buffer, reductions, links, 128 << 10);
        }
      } catch (const Error& why) {  // as a communicator does
        links.intra->fail(why);
        links.inter->fail(why);
        throw;
      }
    });
    for (int rank = 0; rank < 4; ++rank) {
      CHECK_THAT(outcomes.what(rank), Catch::Matchers::ContainsSubstring("no more memory"));
    }
  }
}

}  // namespace
}  // namespace taco
