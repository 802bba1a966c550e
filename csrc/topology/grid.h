#pragma once

#include <string>
#include <vector>

namespace taco {

// Who shares a node with whom: nodes[n] lists the ranks of node n in ascending order; nodes are in
// the order of their lowest rank. The same on every rank.
struct Grid {
  std::vector<std::vector<int>> nodes;
  std::vector<int> nodeOfRank;        // by rank
  std::vector<int> positionOfRank;    // by rank: index within its node
  std::vector<int> memoryOfRank;      // by rank: ranks with the same value really share memory
  bool forced = false;                // shaped by LIGHT_INTRA_SIZE rather than proven

  int worldSize() const { return static_cast<int>(nodeOfRank.size()); }
  int numNodes() const { return static_cast<int>(nodes.size()); }
  int smallestNode() const;
  int largestNode() const;
  bool isRegular() const { return smallestNode() == largestNode(); }
  bool shareMemory(const std::vector<int>& ranks) const;
  std::string describe() const;  // "2 nodes x 2 ranks: [0 1] [2 3]"

  // Groups ranks by `memoryOfRank`, or by blocks of `intraSize` consecutive ranks if that is > 0.
  static Grid make(const std::vector<int>& memoryOfRank, int intraSize);
};

}  // namespace taco
