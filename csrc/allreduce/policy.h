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
  kFlatTopk,  // every rank sends the largest elements of its buffer to all others
  k2dTopk,    // reduce-scatter inside the node, the largest elements of each slice across nodes
};

bool isTopk(AllreduceAlgorithm algorithm);

const char* name(AllreduceAlgorithm algorithm);

// Facts that are the same on every rank.
struct AllreduceRequest {
  uint64_t bytes = 0;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  // The part of the elements to send; 0: compression was not asked for. From 1 on it means a dense
  // step of a buffer that is compressed in others.
  double topkRatio = 0;
  bool topkFp16 = false;
};

// What LIGHT_TOPK_* asks for, of the all-reduce number `step` (from 0) of this size: the request's
// topkRatio, 0 where the operation is not one that may be lossy.
double topkRatioOf(const AllreduceRequest& request, const Settings& settings, uint64_t step);

// Whether an all-reduce of this dtype and op may be compressed at all.
bool mayBeLossy(DType dtype, ReduceOp op);

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
  // Why it is dense although compression was asked for.
  enum class Dense : uint8_t { kNotAsked, kOneNode, kDenseStep, kBeyondBreakEven, kTooLarge };

  AllreduceAlgorithm algorithm = AllreduceAlgorithm::kFlat;
  uint64_t pieceBytes = 0;  // of the pipeline (2D); 0: not pipelined here
  Reason reason = Reason::kOneNode;
  uint64_t bytes = 0;        // of the request
  uint64_t threshold = 0;    // LIGHT_HIERARCHICAL_THRESHOLD
  int sharedNodes = 0;       // nodes with at least 2 ranks
  double topkRatio = 0;      // of the request; 0: not asked for
  double breakEvenRatio = 0; // above it TopK would send more than dense; 0 on one node
  bool topkFp16 = false;
  Dense dense = Dense::kNotAsked;

  // Of this rank, once it has compressed something (setTopkRates); for people.
  double topkSeconds = 0;           // what compressing this request costs
  double networkBytesPerSecond = 0; // as the exchanges of payloads went
  double breakEvenBytesPerSecond = 0;  // on a faster network of a node dense would be faster

  bool operator==(const AllreducePlan&) const = default;
  std::string why() const;       // of the shape, one sentence
  std::string whyDense() const;  // empty where compression was not asked for, or is used
  std::string describe() const;
};

// A pure function of facts that all ranks share, so that they choose the same without talking.
AllreducePlan chooseAllreduce(const AllreduceRequest& request, const Grid& grid,
                              const Settings& settings);

// Fills in what was measured: compressing costs secondsPerElement for each element that a rank selects
// from; it pays as long as the bytes that it saves would take longer.
void setTopkRates(AllreducePlan& plan, const AllreduceRequest& request, const Grid& grid,
                  double secondsPerElement, double secondsPerByte);

}  // namespace taco
