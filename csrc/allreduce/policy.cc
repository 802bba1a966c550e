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

}  // namespace

const char* name(AllreduceAlgorithm algorithm) {
  switch (algorithm) {
    case AllreduceAlgorithm::kFlat: return "flat";
    case AllreduceAlgorithm::k2d: return "2d";
  }
  return "unknown";
}

std::string AllreducePlan::why() const {
  switch (reason) {
    case Reason::kOneNode: return "all ranks are on one node";
    case Reason::kOneRankANode: return "no node has more than one rank";
    case Reason::kSwitchedOff: return "LIGHT_2D_ALLREDUCE=0";
    case Reason::kAboveThreshold:
      return str(bytes, " bytes are more than LIGHT_HIERARCHICAL_THRESHOLD=", threshold);
    case Reason::kTooFewSharedNodes:
      return "fewer than 2 nodes have at least 2 ranks (LIGHT_2D_ALLREDUCE=1 overrides)";
    case Reason::kSwitchedOn: return "LIGHT_2D_ALLREDUCE=1";
    case Reason::kSharedNodes: return str(sharedNodes, " nodes have at least 2 ranks");
  }
  return "unknown";
}

std::string AllreducePlan::describe() const {
  std::string text = name(algorithm);
  if (pieceBytes > 0) text += str(" in pieces of ", pieceBytes, " bytes");
  return text + " (" + why() + ")";
}

AllreducePlan chooseAllreduce(const AllreduceRequest& request, const Grid& grid,
                              const Settings& settings) {
  using Reason = AllreducePlan::Reason;
  AllreducePlan plan;
  if (grid.numNodes() < 2) return plan;
  plan.bytes = request.bytes;
  plan.threshold = settings.hierarchicalThreshold;
  plan.sharedNodes = sharedNodes(grid);
  auto flat = [&plan](Reason reason) {
    plan.reason = reason;
    return plan;
  };
  if (plan.sharedNodes == 0) return flat(Reason::kOneRankANode);
  if (settings.allreduce2d == false) return flat(Reason::kSwitchedOff);
  if (request.bytes > settings.hierarchicalThreshold) return flat(Reason::kAboveThreshold);
  if (!settings.allreduce2d && plan.sharedNodes < 2) return flat(Reason::kTooFewSharedNodes);
  plan.algorithm = AllreduceAlgorithm::k2d;
  plan.pieceBytes = std::clamp(request.bytes / 16, kSmallestPiece, kLargestPiece);
  plan.reason = settings.allreduce2d ? Reason::kSwitchedOn : Reason::kSharedNodes;
  return plan;
}

}  // namespace taco
