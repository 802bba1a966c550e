#include "csrc/topology/grid.h"

#include <algorithm>
#include <map>

#include "csrc/base/format.h"

namespace taco {

Grid Grid::make(const std::vector<int>& memoryOfRank, int intraSize) {
  Grid grid;
  grid.memoryOfRank = memoryOfRank;
  grid.forced = intraSize > 0;
  const int size = static_cast<int>(memoryOfRank.size());
  grid.nodeOfRank.resize(memoryOfRank.size());
  grid.positionOfRank.resize(memoryOfRank.size());
  std::map<int, int> nodeOfKey;
  for (int rank = 0; rank < size; ++rank) {
    const size_t r = static_cast<size_t>(rank);
    const int key = grid.forced ? rank / intraSize : memoryOfRank[r];
    const auto [found, isNew] = nodeOfKey.try_emplace(key, grid.numNodes());
    if (isNew) grid.nodes.emplace_back();
    std::vector<int>& node = grid.nodes[static_cast<size_t>(found->second)];
    grid.nodeOfRank[r] = found->second;
    grid.positionOfRank[r] = static_cast<int>(node.size());
    node.push_back(rank);
  }
  return grid;
}

int Grid::smallestNode() const {
  size_t smallest = nodes.empty() ? 0 : nodes[0].size();
  for (const auto& node : nodes) smallest = std::min(smallest, node.size());
  return static_cast<int>(smallest);
}

int Grid::largestNode() const {
  size_t largest = 0;
  for (const auto& node : nodes) largest = std::max(largest, node.size());
  return static_cast<int>(largest);
}

bool Grid::shareMemory(const std::vector<int>& ranks) const {
  for (int rank : ranks) {
    if (memoryOfRank[static_cast<size_t>(rank)] != memoryOfRank[static_cast<size_t>(ranks[0])]) {
      return false;
    }
  }
  return true;
}

std::string Grid::describe() const {
  std::string text;
  if (isRegular()) {
    text = str(numNodes(), numNodes() == 1 ? " node x " : " nodes x ", largestNode(),
               largestNode() == 1 ? " rank" : " ranks");
  } else {
    text = str(numNodes(), " nodes of ", smallestNode(), " to ", largestNode(), " ranks");
  }
  if (forced) text += " (shaped by LIGHT_INTRA_SIZE)";
  text += ":";
  // A thousand ranks are not listed one by one.
  constexpr size_t kMostNodes = 16;
  for (size_t n = 0; n < nodes.size() && n < kMostNodes; ++n) {
    text += " [";
    const bool consecutive = nodes[n].back() - nodes[n].front() + 1 ==
                             static_cast<int>(nodes[n].size());
    if (consecutive && nodes[n].size() > 2) {
      text += str(nodes[n].front(), "-", nodes[n].back());
    } else {
      for (size_t i = 0; i < nodes[n].size(); ++i) text += str(i == 0 ? "" : " ", nodes[n][i]);
    }
    text += "]";
  }
  if (nodes.size() > kMostNodes) text += " ...";
  return text;
}

}  // namespace taco
