#include "csrc/allreduce/policy.h"

#include <cmath>
#include <set>

#include "csrc/topk/warmup.h"
#include "tests/csrc/ranks.h"

namespace taco {
namespace {

using Catch::Matchers::ContainsSubstring;

Grid grid(const std::vector<int>& nodeSizes) {
  std::vector<int> memory;
  for (const int size : nodeSizes) {
    const int first = static_cast<int>(memory.size());
    memory.insert(memory.end(), static_cast<size_t>(size), first);
  }
  return Grid::make(memory, 0);
}

AllreducePlan choose(const std::vector<int>& nodeSizes, std::optional<bool> allreduce2d,
                     uint64_t bytes = 1 << 20, uint64_t threshold = 1073741824) {
  Settings settings;
  settings.allreduce2d = allreduce2d;
  settings.hierarchicalThreshold = threshold;
  return chooseAllreduce({bytes, DType::kFloat32, ReduceOp::kSum}, grid(nodeSizes), settings);
}

TEST_CASE("the algorithm follows the grid and LIGHT_2D_ALLREDUCE") {
  struct Row {
    std::vector<int> nodes;
    bool unset;
    bool on;
    const char* whyFlat;  // where it is flat with 1
  };
  const std::vector<Row> rows = {
      {{1}, false, false, "one node"},
      {{4}, false, false, "one node"},
      {{1, 1}, false, false, "no node has more than one rank"},
      {{1, 1, 1, 1}, false, false, "no node has more than one rank"},
      {{2, 1}, false, true, ""},
      {{1, 8}, false, true, ""},
      {{2, 2}, true, true, ""},
      {{8, 4}, true, true, ""},
      {{2, 1, 2}, true, true, ""},
      {{3, 1, 1}, false, true, ""},
      {{8, 8, 8, 8}, true, true, ""},
  };
  for (const Row& row : rows) {
    INFO(grid(row.nodes).describe());
    const AllreducePlan off = choose(row.nodes, false);
    const AllreducePlan unset = choose(row.nodes, std::nullopt);
    const AllreducePlan on = choose(row.nodes, true);
    CHECK(off.algorithm == AllreduceAlgorithm::kFlat);
    CHECK((unset.algorithm == AllreduceAlgorithm::k2d) == row.unset);
    CHECK((on.algorithm == AllreduceAlgorithm::k2d) == row.on);
    if (!row.on) CHECK_THAT(on.why(), ContainsSubstring(row.whyFlat));
    if (row.on) CHECK(off.why() == "LIGHT_2D_ALLREDUCE=0");
    if (row.on) CHECK(on.why() == "LIGHT_2D_ALLREDUCE=1");
    if (row.on && !row.unset) CHECK_THAT(unset.why(), ContainsSubstring("fewer than 2 nodes"));
    for (const AllreducePlan& plan : {off, unset, on}) {
      CHECK((plan.pieceBytes > 0) == (plan.algorithm == AllreduceAlgorithm::k2d));
      CHECK_THAT(plan.describe(), ContainsSubstring(plan.why()));
      CHECK_THAT(plan.describe(), Catch::Matchers::StartsWith(name(plan.algorithm)));
    }
  }
}

TEST_CASE("2D up to and including the threshold, with and without LIGHT_2D_ALLREDUCE=1") {
  for (const std::optional<bool> set : {std::optional<bool>(), std::optional<bool>(true)}) {
    auto is2d = [&](uint64_t bytes, uint64_t threshold) {
      return choose({2, 2}, set, bytes, threshold).algorithm == AllreduceAlgorithm::k2d;
    };
    CHECK(is2d(1073741823, 1073741824));
    CHECK(is2d(1073741824, 1073741824));
    CHECK_FALSE(is2d(1073741825, 1073741824));
    CHECK(is2d(0, 0));
    CHECK_FALSE(is2d(1, 0));
    CHECK(is2d(UINT64_MAX, UINT64_MAX));
    CHECK_THAT(choose({2, 2}, set, 9, 8).why(),
               ContainsSubstring("9 bytes") && ContainsSubstring("LIGHT_HIERARCHICAL_THRESHOLD=8"));
  }
}

TEST_CASE("pieces are a sixteenth of the whole, within their limits") {
  auto piece = [](uint64_t bytes) { return choose({2, 2}, true, bytes, UINT64_MAX).pieceBytes; };
  CHECK(piece(0) == 128 << 10);
  CHECK(piece(2 << 20) == 128 << 10);
  CHECK(piece((2 << 20) + 16) == (128 << 10) + 1);
  CHECK(piece(16 << 20) == 1 << 20);
  CHECK(piece(32 << 20) == 2 << 20);
  CHECK(piece(1ull << 40) == 2 << 20);
}

// The outcomes of docs/algorithms.md, "TopK: which all-reduce is compressed".
TEST_CASE("LIGHT_TOPK_*: which all-reduces ask for compression") {
  Settings settings;
  settings.topkAllreduce = true;
  settings.topkRatio = 0.02;
  settings.topkThreshold = 1000;
  const auto ratio = [&](DType dtype, ReduceOp op, uint64_t bytes, uint64_t step = 0) {
    return topkRatioOf({bytes, dtype, op}, settings, step);
  };
  CHECK(ratio(DType::kFloat32, ReduceOp::kSum, 999) == 0);
  CHECK(ratio(DType::kFloat32, ReduceOp::kSum, 1000) == 0.02);
  CHECK(ratio(DType::kFloat32, ReduceOp::kSum, 1001) == 0.02);
  for (int d = 0; d < kNumDTypes; ++d) {
    for (int o = 0; o < kNumReduceOps; ++o) {
      const auto dtype = static_cast<DType>(d);
      const auto op = static_cast<ReduceOp>(o);
      INFO(name(dtype) << " " << name(op));
      const bool lossy =
          (op == ReduceOp::kSum || op == ReduceOp::kAvg) &&
          (dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16);
      CHECK(mayBeLossy(dtype, op) == lossy);
      CHECK(ratio(dtype, op, 1 << 20) == (lossy ? 0.02 : 0));
    }
  }
  settings.topkWarmupSteps = 8;
  CHECK(ratio(DType::kFloat32, ReduceOp::kSum, 1000, 0) == 1);
  CHECK(ratio(DType::kFloat32, ReduceOp::kSum, 1000, 1) == 1);
  CHECK(ratio(DType::kFloat32, ReduceOp::kSum, 1000, 8) == 0.02);
  settings.topkAllreduce = false;
  CHECK(ratio(DType::kFloat32, ReduceOp::kSum, 1 << 20) == 0);
}

TEST_CASE("the warm-up is dense first, then falls exponentially") {
  for (const uint64_t steps : {1, 2, 3, 4, 5, 8, 100, 1000}) {
    double before = 1;
    for (uint64_t step = 0; step < steps; ++step) {
      const double ratio = topkRatioAt(step, steps, 0.001);
      INFO(step << " of " << steps << ": " << ratio);
      CHECK((ratio == 1) == (step < steps / 4));
      CHECK(ratio > 0.001);
      CHECK(ratio <= before);
      before = ratio;
    }
    CHECK(topkRatioAt(steps, steps, 0.001) == 0.001);
  }
  // By the same factor with every step: 1 -> 0.001 in 75 + 1 of them.
  CHECK(topkRatioAt(60, 100, 0.001) / topkRatioAt(59, 100, 0.001) ==
        Approx(std::pow(0.001, 1.0 / 76)));
  CHECK(topkRatioAt(0, 0, 0.5) == 0.5);
}

TEST_CASE("compression keeps the shape, and ends at the break-even") {
  using Dense = AllreducePlan::Dense;
  const auto plan = [](const std::vector<int>& nodes, double ratio, bool fp16 = false,
                       DType dtype = DType::kFloat32, uint64_t bytes = 1 << 20,
                       std::optional<bool> allreduce2d = std::nullopt) {
    AllreduceRequest request{bytes, dtype, ReduceOp::kSum};
    request.topkRatio = ratio;
    request.topkFp16 = fp16;
    Settings settings;
    settings.allreduce2d = allreduce2d;
    return chooseAllreduce(request, grid(nodes), settings);
  };
  CHECK(plan({2, 2}, 0.01).algorithm == AllreduceAlgorithm::k2dTopk);
  CHECK(plan({2, 2}, 0.01, false, DType::kFloat32, 1 << 20, false).algorithm ==
        AllreduceAlgorithm::kFlatTopk);
  CHECK(plan({1, 1}, 0.01).algorithm == AllreduceAlgorithm::kFlatTopk);
  CHECK(plan({2, 2}, 0.01, false, DType::kFloat32, (1 << 30) + 4).algorithm ==
        AllreduceAlgorithm::kFlatTopk);  // above LIGHT_HIERARCHICAL_THRESHOLD
  CHECK(plan({2, 1}, 0.01).algorithm == AllreduceAlgorithm::kFlatTopk);
  CHECK(plan({2, 1}, 0.01, false, DType::kFloat32, 1 << 20, true).algorithm ==
        AllreduceAlgorithm::k2dTopk);
  CHECK(plan({4}, 0.01).algorithm == AllreduceAlgorithm::kFlat);
  CHECK(plan({4}, 0.01).dense == Dense::kOneNode);
  CHECK(plan({2, 2}, 1.0).algorithm == AllreduceAlgorithm::k2d);
  CHECK(plan({2, 2}, 1.0).dense == Dense::kDenseStep);
  CHECK(plan({2, 2}, 0).dense == Dense::kNotAsked);
  CHECK(plan({2, 2}, 0).topkRatio == 0);

  // 2 s / (m (v + i)): m nodes where 2D, else ranks.
  const std::vector<int> hundred(100, 2);
  CHECK(plan(hundred, 0.0099).algorithm == AllreduceAlgorithm::k2dTopk);
  CHECK(plan(hundred, 0.01).algorithm == AllreduceAlgorithm::k2d);
  CHECK(plan(hundred, 0.01).dense == Dense::kBeyondBreakEven);
  CHECK(plan(hundred, 0.01, true).algorithm == AllreduceAlgorithm::k2dTopk);
  CHECK(plan(std::vector<int>(100, 1), 0.01).algorithm == AllreduceAlgorithm::kFlat);
  CHECK(plan({2, 2}, 0.01).breakEvenRatio == Approx(0.5));
  CHECK(plan({2, 2}, 0.01, true).breakEvenRatio == Approx(8.0 / 12));
  CHECK(plan({2, 2}, 0.01, false, DType::kBFloat16).breakEvenRatio == Approx(0.25));
  CHECK(plan({2, 2}, 0.01, false, DType::kFloat32, 1 << 20, false).breakEvenRatio == Approx(0.25));

  CHECK(plan({1, 1}, 0.01, false, DType::kBFloat16, (1ull << 33) - 2).algorithm ==
        AllreduceAlgorithm::kFlatTopk);
  CHECK(plan({1, 1}, 0.01, false, DType::kBFloat16, 1ull << 33).dense == Dense::kTooLarge);

  CHECK(plan({2, 2}, 0.01, true).describe() ==
        "2d_topk, 1 % of the elements as float16 (break-even with dense: 66.6667 %) (2 nodes have "
        "at least 2 ranks)");
  CHECK(plan({2, 2}, 0.75).describe() ==
        "2d in pieces of 131072 bytes, not compressed: a ratio of 0.75 is at or above the "
        "break-even of 0.5 (2 nodes have at least 2 ranks)");
  for (const double ratio : {0.0, 0.01, 0.75, 1.0}) {
    const AllreducePlan one = plan({2, 2}, ratio);
    CHECK(one.whyDense().empty() == (one.dense == Dense::kNotAsked));
    CHECK((one.pieceBytes > 0) == (one.algorithm == AllreduceAlgorithm::k2d));
  }
}

TEST_CASE("the break-even of the measured rates") {
  // 2 x 2, 4 MB: each rank selects from half a million elements, at 2 ns each 1 ms. The node would
  // send 4 MB dense, and sends 2 x 5,000 x 8 bytes: 3.92 MB saved in 1 ms is 31.36 Gbit/s.
  AllreduceRequest request{4'000'000, DType::kFloat32, ReduceOp::kSum};
  request.topkRatio = 0.01;
  AllreducePlan plan = chooseAllreduce(request, grid({2, 2}), Settings());
  const AllreducePlan unmeasured = plan;
  setTopkRates(plan, request, grid({2, 2}), 2e-9, 0);
  CHECK(plan == unmeasured);
  setTopkRates(plan, request, grid({2, 2}), 2e-9, 8e-9);
  CHECK(plan.topkSeconds == Approx(1e-3));
  CHECK(plan.networkBytesPerSecond == Approx(1.25e8));
  CHECK(plan.breakEvenBytesPerSecond == Approx(3.92e9));
  CHECK_THAT(plan.describe(), ContainsSubstring("pays below 31.36 Gbit/s of a node: compressing "
                                                "takes 1 ms here, and a rank's network did 1 "
                                                "Gbit/s"));
  request.topkRatio = 0;
  AllreducePlan dense = chooseAllreduce(request, grid({2, 2}), Settings());
  setTopkRates(dense, request, grid({2, 2}), 2e-9, 8e-9);
  CHECK(dense.breakEvenBytesPerSecond == 0);
}

TEST_CASE("a plan is a value") {
  const AllreducePlan plan = choose({2, 2}, true);
  CHECK(plan == choose({2, 2}, true));
  CHECK_FALSE(plan == choose({2, 2}, std::nullopt));  // another reason
  CHECK(plan.describe() == "2d in pieces of 131072 bytes (LIGHT_2D_ALLREDUCE=1)");
  CHECK(choose({2}, true).describe() == "flat (all ranks are on one node)");
  CHECK(std::string(name(AllreduceAlgorithm::kFlat)) == "flat");
  CHECK(std::string(name(AllreduceAlgorithm::k2d)) == "2d");
}

}  // namespace
}  // namespace taco
