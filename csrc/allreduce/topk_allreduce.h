#pragma once

#include <cstdint>

#include "csrc/allreduce/two_d.h"
#include "csrc/link/link.h"
#include "csrc/topk/residuals.h"

namespace taco {

// Where the ranks of a compressed all-reduce meet. Flat: `intra` is null and `inter` has all ranks.
struct TopkLinks {
  Link* intra = nullptr;
  Link* inter = nullptr;  // null on a rank without a column
  int columns = 1;
  int nodes = 1;  // how many members every `inter` has
};

struct TopkWork {
  double ratio = 0.01;   // from 1 on: everything is sent, the residual ends as 0
  TopkValues values = TopkValues::kFloat32;
  double momentum = 0;   // 0: none
  int64_t divisor = 1;   // AVG: ranks in all
  TopkMeter* meter = nullptr;  // may be null
};

// The part of a buffer of `count` elements that this rank selects from and keeps a residual of.
ColumnRange topkSlice(size_t count, const TopkLinks& links);
inline ResidualDomain domainOf(const TopkLinks& links) {
  return links.intra == nullptr ? ResidualDomain::kFlat : ResidualDomain::k2d;
}

// A TopK-compressed all-reduce with error feedback, in place: HiTopKComm of Shi et al., MLSys 2021
// (arXiv 2010.10458), where N nodes have g ranks each:
//   reduce-scatter inside the node: column p has the node's sum of slice p, d / g elements,
//   slice + residual: the k = ratio d / g elements of largest magnitude go into a payload, the rest
//     becomes the residual (csrc/topk/select.h),
//   the N payloads of a column go to all of its ranks, and then to all ranks of the node,
//   every rank adds the payloads up in node order and writes the whole result, zeros included.
// In the paper the last step adds up the own slice only, and a dense all-gather in the node follows.
// The payloads are far smaller than the slices, so here they are what is gathered; the additions are
// the same, in the same order, and the result has the same bits on every rank.
// Sent across nodes: a payload k (v + 4) bytes, v = 4 or 2, N - 1 times by each rank; dense 2D sends
// 2 (N - 1) / N d / g s bytes. Inside the node d s bytes are reduced, and (N g k (v + 4)) gathered.
//
// Not finite: an element that is not on one rank is not in the result either, on all ranks (those
// have the largest magnitudes); then all ranks clear their residual of this buffer, since the step
// will be skipped (as by torch's GradScaler).
//
// residual: of topkSlice(); null on a rank without a column. float32, float16, bfloat16.
void allReduceTopk(const OpContext& op, Buffer buffer, const Reduction& insideNode,
                   const TopkLinks& links, const TopkWork& work, Residual* residual);

}  // namespace taco
