#include "csrc/allreduce/policy.h"

#include <set>

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
