// The links of a grid of ranks that are threads: shared memory or TCP inside the nodes, TCP between
// them, and one link over all.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "csrc/allreduce/topk_allreduce.h"
#include "csrc/allreduce/two_d.h"
#include "tests/csrc/link/link_ranks.h"

namespace taco::testing {

struct GridRanks {
  GridRanks(const std::vector<std::vector<int>>& theNodes, LinkKind intraKind) : nodes(theNodes) {
    size_t size = 0;
    columns = static_cast<int>(nodes[0].size());
    for (const auto& node : nodes) {
      size += node.size();
      columns = std::min(columns, static_cast<int>(node.size()));
    }
    intra.resize(size);
    inter.resize(size);
    flat.resize(size);
    std::vector<int> everyone(size);
    std::iota(everyone.begin(), everyone.end(), 0);
    for (size_t rank = 0; rank < size; ++rank) aborts.push_back(std::make_unique<AbortSignal>());
    auto transports = makeTransports(static_cast<int>(size));
    std::vector<std::shared_ptr<Mesh>> meshes;
    for (size_t rank = 0; rank < size; ++rank) {
      meshes.push_back(std::make_shared<Mesh>(std::move(transports[rank]), *aborts[rank]));
    }
    MemoryStore store;
    runRanks(static_cast<int>(size), [&](int rank) {
      const size_t self = static_cast<size_t>(rank);
      flat[self] = std::make_unique<MeshLink>(meshes[self], everyone);
      for (const auto& node : nodes) {
        const auto found = std::find(node.begin(), node.end(), rank);
        if (found == node.end()) continue;
        const int position = static_cast<int>(found - node.begin());
        if (node.size() == 1) {
          intra[self] = std::make_unique<SoloLink>();
        } else if (intraKind == LinkKind::kMesh) {
          intra[self] = std::make_unique<MeshLink>(meshes[self], node);
        } else {
          intra[self] =
              makeShmLink(intraKind, str("node ", node[0]), store, node, position, *aborts[self]);
        }
        if (position >= columns) continue;
        std::vector<int> column;
        for (const auto& other : nodes) column.push_back(other[static_cast<size_t>(position)]);
        inter[self] = std::make_unique<MeshLink>(meshes[self], column);
      }
    });
  }

  int size() const { return static_cast<int>(intra.size()); }
  TwoDLinks links(int rank) const {
    const size_t self = static_cast<size_t>(rank);
    return {intra[self].get(), inter[self].get(), columns};
  }
  TopkLinks topkLinks(int rank, bool is2d) const {
    const size_t self = static_cast<size_t>(rank);
    if (!is2d) return {nullptr, flat[self].get(), 1, size()};
    return {intra[self].get(), inter[self].get(), columns, static_cast<int>(nodes.size())};
  }

  std::vector<std::vector<int>> nodes;
  int columns;
  std::vector<std::unique_ptr<AbortSignal>> aborts;
  std::vector<std::unique_ptr<Link>> intra;
  std::vector<std::unique_ptr<Link>> inter;
  std::vector<std::unique_ptr<Link>> flat;
};

}  // namespace taco::testing
