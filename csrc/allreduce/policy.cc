#include "csrc/allreduce/policy.h"

#include <algorithm>

#include "csrc/base/format.h"

namespace taco {
namespace {

// Pieces overlap the work inside the node with the wire. Small ones shorten the start and the end
// of the pipeline, large ones cost fewer messages; a sixteenth of the whole, within these limits,
// keeps both below a few percent.
constexpr uint64_t kSmallestPiece = 128 << 10;
constexpr uint64_t kLargestPiece = 2 << 20;

// Nodes with at least 2 ranks.
int sharedNodes(const Grid& grid) {
  return static_cast<int>(std::count_if(grid.nodes.begin(), grid.nodes.end(),
                                        [](const auto& node) { return node.size() >= 2; }));
}

AllreducePlan flat(std::string why) {
  return {AllreduceAlgorithm::kFlat, 0, std::move(why)};
}

}  // namespace

const char* name(AllreduceAlgorithm algorithm) {
  switch (algorithm) {
    case AllreduceAlgorithm::kFlat: return "flat";
    case AllreduceAlgorithm::k2d: return "2d";
  }
  return "unknown";
}

std::string AllreducePlan::describe() const {
  std::string text = name(algorithm);
  if (pieceBytes > 0) text += str(" in pieces of ", pieceBytes, " bytes");
  return text + " (" + why + ")";
}

AllreducePlan chooseAllreduce(const AllreduceRequest& request, const Grid& grid,
                              const Settings& settings) {
  const int shared = sharedNodes(grid);
  if (grid.numNodes() < 2) return flat("all ranks are on one node");
  if (shared == 0) return flat("no node has more than one rank");
  if (settings.allreduce2d == false) return flat("LIGHT_2D_ALLREDUCE=0");
  if (request.bytes > settings.hierarchicalThreshold) {
    return flat(str(request.bytes, " bytes are more than LIGHT_HIERARCHICAL_THRESHOLD=",
                    settings.hierarchicalThreshold));
  }
  if (!settings.allreduce2d && shared < 2) {
    return flat("fewer than 2 nodes have at least 2 ranks (LIGHT_2D_ALLREDUCE=1 overrides)");
  }
  AllreducePlan plan;
  plan.algorithm = AllreduceAlgorithm::k2d;
  plan.pieceBytes = std::clamp(request.bytes / 16, kSmallestPiece, kLargestPiece);
  plan.why = settings.allreduce2d ? "LIGHT_2D_ALLREDUCE=1"
                                  : str(shared, " nodes have at least 2 ranks");
  return plan;
}

}  // namespace taco
