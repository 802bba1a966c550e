#include "csrc/allreduce/policy.h"

#include <algorithm>

#include "csrc/base/format.h"
#include "csrc/topk/warmup.h"

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

// On the wire, of one element that is sent: its index and its value.
double sentBytesPerElement(bool fp16) { return fp16 ? 6 : 8; }

// Dense or TopK over the given shape (flat or 2D). TopK: each of m senders sends its k elements to
// m - 1 others, k (m - 1) (v + i) bytes; dense: 2 (m - 1) / m of its d elements, s bytes each. They
// meet at k / d = 2 s / (m (v + i)).
void choosePayload(const AllreduceRequest& request, const Grid& grid, AllreducePlan& plan) {
  using Dense = AllreducePlan::Dense;
  const bool is2d = plan.algorithm == AllreduceAlgorithm::k2d;
  const int senders = is2d ? grid.numNodes() : grid.worldSize();
  plan.breakEvenRatio = 2.0 * static_cast<double>(elementBytes(request.dtype)) /
                        (senders * sentBytesPerElement(request.topkFp16));
  plan.topkRatio = request.topkRatio;
  plan.topkFp16 = request.topkFp16;
  if (request.topkRatio >= 1) {
    plan.dense = Dense::kDenseStep;
  } else if (request.topkRatio >= plan.breakEvenRatio) {
    plan.dense = Dense::kBeyondBreakEven;
  } else if (request.bytes / elementBytes(request.dtype) > UINT32_MAX) {
    plan.dense = Dense::kTooLarge;
  } else {
    plan.algorithm = is2d ? AllreduceAlgorithm::k2dTopk : AllreduceAlgorithm::kFlatTopk;
    plan.pieceBytes = 0;
  }
}

}  // namespace

const char* name(AllreduceAlgorithm algorithm) {
  switch (algorithm) {
    case AllreduceAlgorithm::kFlat: return "flat";
    case AllreduceAlgorithm::k2d: return "2d";
    case AllreduceAlgorithm::kFlatTopk: return "flat_topk";
    case AllreduceAlgorithm::k2dTopk: return "2d_topk";
  }
  return "unknown";
}

bool isTopk(AllreduceAlgorithm algorithm) {
  return algorithm == AllreduceAlgorithm::kFlatTopk || algorithm == AllreduceAlgorithm::k2dTopk;
}

bool mayBeLossy(DType dtype, ReduceOp op) {
  return (op == ReduceOp::kSum || op == ReduceOp::kAvg) &&
         (dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16);
}

double topkRatioOf(const AllreduceRequest& request, const Settings& settings, uint64_t step) {
  if (!settings.topkAllreduce || !mayBeLossy(request.dtype, request.op)) return 0;
  if (request.bytes < settings.topkThreshold) return 0;
  return topkRatioAt(step, settings.topkWarmupSteps, settings.topkRatio);
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
  if (isTopk(algorithm)) {
    text += str(", ", topkRatio * 100, " % of the elements", topkFp16 ? " as float16" : "",
                " (break-even with dense: ", breakEvenRatio * 100, " %)");
  }
  if (breakEvenBytesPerSecond > 0) {
    const auto gigabits = [](double bytesPerSecond) { return bytesPerSecond * 8e-9; };
    text += str(", pays below ", gigabits(breakEvenBytesPerSecond),
                " Gbit/s of a node: compressing takes ", topkSeconds * 1e3,
                " ms here, and a rank's network did ", gigabits(networkBytesPerSecond), " Gbit/s");
  }
  if (dense != Dense::kNotAsked) text += str(", not compressed: ", whyDense());
  return text + " (" + why() + ")";
}

std::string AllreducePlan::whyDense() const {
  switch (dense) {
    case Dense::kNotAsked: return "";
    case Dense::kOneNode: return "all ranks are on one node";
    case Dense::kDenseStep: return "this step is dense";
    case Dense::kBeyondBreakEven:
      return str("a ratio of ", topkRatio, " is at or above the break-even of ", breakEvenRatio);
    case Dense::kTooLarge: return "more than 4294967295 elements";
  }
  return "unknown";
}

namespace {

// Over which links, without regard to compression.
AllreducePlan chooseShape(const AllreduceRequest& request, const Grid& grid,
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

}  // namespace

AllreducePlan chooseAllreduce(const AllreduceRequest& request, const Grid& grid,
                              const Settings& settings) {
  AllreducePlan plan = chooseShape(request, grid, settings);
  if (!(request.topkRatio > 0)) return plan;
  if (grid.numNodes() < 2) {
    plan.topkRatio = request.topkRatio;
    plan.dense = AllreducePlan::Dense::kOneNode;
    return plan;
  }
  choosePayload(request, grid, plan);
  return plan;
}

void setTopkRates(AllreducePlan& plan, const AllreduceRequest& request, const Grid& grid,
                  double secondsPerElement, double secondsPerByte) {
  if (!isTopk(plan.algorithm) || secondsPerElement == 0 || secondsPerByte == 0) return;
  const bool is2d = plan.algorithm == AllreduceAlgorithm::k2dTopk;
  const double elements =
      static_cast<double>(request.bytes) / static_cast<double>(elementBytes(request.dtype));
  // Of each rank with a column, and what the ranks of a node send together.
  const double own = is2d ? elements / static_cast<double>(grid.smallestNode()) : elements;
  const double senders = is2d ? static_cast<double>(grid.smallestNode())
                              : static_cast<double>(grid.nodes[0].size());
  const double others = is2d ? grid.numNodes() - 1 : grid.worldSize() - 1;
  const double denseBytes = 2 * others / (others + 1) * own * senders *
                            static_cast<double>(elementBytes(request.dtype));
  const double sentBytes = others * plan.topkRatio * own * senders * sentBytesPerElement(plan.topkFp16);
  plan.topkSeconds = own * secondsPerElement;
  plan.networkBytesPerSecond = 1 / secondsPerByte;
  plan.breakEvenBytesPerSecond = (denseBytes - sentBytes) / plan.topkSeconds;
}

}  // namespace taco
