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

struct AllreducePlan {
  AllreduceAlgorithm algorithm = AllreduceAlgorithm::kFlat;
  uint64_t pieceBytes = 0;  // of the pipeline (2D); 0: not pipelined here
  std::string why;          // one sentence

  bool operator==(const AllreducePlan&) const = default;
  std::string describe() const;
};

// A pure function of facts that all ranks share, so that they choose the same without talking.
AllreducePlan chooseAllreduce(const AllreduceRequest& request, const Grid& grid,
                              const Settings& settings);

}  // namespace taco
