#pragma once

#include <cstdint>
#include <string>

#include "csrc/data/dtype.h"
#include "csrc/data/reduce_op.h"
#include "csrc/settings/settings.h"
#include "csrc/topology/grid.h"

namespace taco {

enum class AllreduceAlgorithm : uint8_t {
  kFlat,  // one all-reduce over all ranks
  k2d,    // reduce-scatter inside the node, all-reduce across nodes, all-gather inside the node
};

const char* name(AllreduceAlgorithm algorithm);

// Facts that are the same on every rank.
struct AllreduceRequest {
  uint64_t bytes = 0;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
};

// Made for every all-reduce, so it holds no text.
struct AllreducePlan {
  enum class Reason : uint8_t {
    kOneNode,
    kOneRankANode,
    kSwitchedOff,
    kAboveThreshold,
    kTooFewSharedNodes,
    kSwitchedOn,
    kSharedNodes,
  };

  AllreduceAlgorithm algorithm = AllreduceAlgorithm::kFlat;
  uint64_t pieceBytes = 0;  // of the pipeline (2D); 0: not pipelined here
  Reason reason = Reason::kOneNode;
  uint64_t bytes = 0;        // of the request
  uint64_t threshold = 0;    // LIGHT_HIERARCHICAL_THRESHOLD
  int sharedNodes = 0;       // nodes with at least 2 ranks

  bool operator==(const AllreducePlan&) const = default;
  std::string why() const;  // one sentence
  std::string describe() const;
};

// A pure function of facts that all ranks share, so that they choose the same without talking.
AllreducePlan chooseAllreduce(const AllreduceRequest& request, const Grid& grid,
                              const Settings& settings);

}  // namespace taco
