#include "csrc/topology/grid.h"

#include <random>

#include "csrc/base/error.h"
#include "csrc/topology/fields.h"
#include "tests/csrc/ranks.h"

namespace taco {
namespace {

using namespace taco::testing;
using Nodes = std::vector<std::vector<int>>;

void checkConsistent(const Grid& grid) {
  int seen = 0;
  int lastFirst = -1;
  for (int n = 0; n < grid.numNodes(); ++n) {
    const auto& node = grid.nodes[static_cast<size_t>(n)];
    REQUIRE_FALSE(node.empty());
    CHECK(node.front() > lastFirst);
    lastFirst = node.front();
    for (size_t i = 0; i < node.size(); ++i, ++seen) {
      CHECK(grid.nodeOfRank[static_cast<size_t>(node[i])] == n);
      CHECK(grid.positionOfRank[static_cast<size_t>(node[i])] == static_cast<int>(i));
      if (i > 0) CHECK(node[i] > node[i - 1]);
    }
  }
  CHECK(seen == grid.worldSize());
}

TEST_CASE("a grid groups the ranks that share memory, nodes in the order of their lowest rank") {
  struct Example {
    std::vector<int> memory;
    int intraSize;
    Nodes nodes;
    int smallest;
    int largest;
    const char* text;
  };
  const std::vector<Example> examples = {
      {{0}, 0, {{0}}, 1, 1, "1 node x 1 rank: [0]"},
      {{0, 0, 0, 0}, 0, {{0, 1, 2, 3}}, 4, 4, "1 node x 4 ranks: [0-3]"},
      {{0, 0, 2, 2}, 0, {{0, 1}, {2, 3}}, 2, 2, "2 nodes x 2 ranks: [0 1] [2 3]"},
      {{0, 1, 0, 1}, 0, {{0, 2}, {1, 3}}, 2, 2, "2 nodes x 2 ranks: [0 2] [1 3]"},
      {{0, 1, 2}, 0, {{0}, {1}, {2}}, 1, 1, "3 nodes x 1 rank: [0] [1] [2]"},
      {{0, 1, 1}, 0, {{0}, {1, 2}}, 1, 2, "2 nodes of 1 to 2 ranks: [0] [1 2]"},
      {{0, 1, 0, 0, 1, 5},
       0,
       {{0, 2, 3}, {1, 4}, {5}},
       1,
       3,
       "3 nodes of 1 to 3 ranks: [0 2 3] [1 4] [5]"},
      {{0, 0, 0, 0},
       2,
       {{0, 1}, {2, 3}},
       2,
       2,
       "2 nodes x 2 ranks (shaped by LIGHT_INTRA_SIZE): [0 1] [2 3]"},
      {{0, 0, 0, 0, 0},
       2,
       {{0, 1}, {2, 3}, {4}},
       1,
       2,
       "3 nodes of 1 to 2 ranks (shaped by LIGHT_INTRA_SIZE): [0 1] [2 3] [4]"},
      {{0, 1, 2, 3},
       100,
       {{0, 1, 2, 3}},
       4,
       4,
       "1 node x 4 ranks (shaped by LIGHT_INTRA_SIZE): [0-3]"},
      {{0, 0, 0},
       1,
       {{0}, {1}, {2}},
       1,
       1,
       "3 nodes x 1 rank (shaped by LIGHT_INTRA_SIZE): [0] [1] [2]"},
      {{0, 0, 0},
       INT32_MAX,
       {{0, 1, 2}},
       3,
       3,
       "1 node x 3 ranks (shaped by LIGHT_INTRA_SIZE): [0-2]"},
  };
  for (const Example& example : examples) {
    const Grid grid = Grid::make(example.memory, example.intraSize);
    INFO(grid.describe());
    CHECK(grid.nodes == example.nodes);
    CHECK(grid.smallestNode() == example.smallest);
    CHECK(grid.largestNode() == example.largest);
    CHECK(grid.isRegular() == (example.smallest == example.largest));
    CHECK(grid.forced == (example.intraSize > 0));
    CHECK(grid.worldSize() == static_cast<int>(example.memory.size()));
    CHECK(grid.describe() == example.text);
    checkConsistent(grid);
  }
}

TEST_CASE("whether ranks share memory is what was proven, whatever shapes the grid") {
  const Grid grid = Grid::make({0, 0, 2, 2}, 3);
  CHECK(grid.shareMemory({0, 1}));
  CHECK(grid.shareMemory({2, 3}));
  CHECK(grid.shareMemory({3}));
  CHECK_FALSE(grid.shareMemory({0, 1, 2}));
  CHECK_FALSE(grid.shareMemory({1, 3}));
}

TEST_CASE("random grids are consistent") {
  std::mt19937 random(5);
  for (int i = 0; i < 500; ++i) {
    const size_t size = 1 + random() % 40;
    std::vector<int> memory(size);
    for (size_t r = 0; r < size; ++r) {
      const size_t other = random() % (r + 1);
      memory[r] = memory[other] == static_cast<int>(other) || other == r ? static_cast<int>(other)
                                                                         : memory[other];
    }
    checkConsistent(Grid::make(memory, random() % 2 == 0 ? 0 : static_cast<int>(1 + random() % 9)));
  }
}

TEST_CASE("a large grid is not listed to the end") {
  std::vector<int> memory(1000);
  for (int r = 0; r < 1000; ++r) memory[static_cast<size_t>(r)] = r;
  const std::string text = Grid::make(memory, 8).describe();
  CHECK(text.size() < 300);
  CHECK_THAT(text, Catch::Matchers::EndsWith(" ..."));
}

TEST_CASE("what was packed unpacks, whatever its bytes") {
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    std::vector<std::string> fields(random() % 6);
    for (std::string& field : fields) {
      field.resize(random() % 2 == 0 ? random() % 4 : random() % 3000);
      for (char& byte : field)
        byte = static_cast<char>(random() % 3 == 0 ? '0' + random() % 11 : random());
    }
    CHECK(unpack(pack(fields)) == fields);
    CHECK(unpack(pack({pack(fields), ""})).at(0) == pack(fields));
  }
  CHECK(unpack("").empty());
}

TEST_CASE("damaged records are errors and nothing worse") {
  for (const std::string text :
       {"5:hell", ":", "x", "-1:", "5", "5;hello", "0:0", "3:abc4:ab", "99999999999999999999:x",
        "999999999999:x", " 1:a", "1:a ", "1:ab"}) {
    const Error error = errorOf([&] { unpack(text); });
    INFO(text);
    CHECK(error.code() == ErrorCode::kPeerFailed);
  }
  std::mt19937 random(2);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = pack({"hello", std::string(random() % 12, '7'), "", "1:2"});
    const uint32_t kind = random() % 3;
    if (kind == 0) text.resize(random() % text.size());
    if (kind == 1) text[random() % text.size()] = static_cast<char>(random());
    if (kind == 2) text.insert(random() % text.size(), 1, static_cast<char>('0' + random() % 11));
    try {
      size_t bytes = 0;
      for (const std::string& field : unpack(text)) bytes += field.size();
      CHECK(bytes < text.size() + 1);
    } catch (const Error&) {
      ++refused;
    }
  }
  CHECK(refused > 5000);
}

}  // namespace
}  // namespace taco
