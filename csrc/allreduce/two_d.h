#pragma once

#include <vector>

#include "csrc/link/link.h"

namespace taco {

// The two links of a 2D all-reduce on this rank. A grid has as many columns as its smallest node
// has ranks; the rank at position p < columns of a node belongs to column p. Ranks at higher
// positions (irregular grids) have no column: they give away what they have and get the result.
struct TwoDLinks {
  Link* intra = nullptr;  // the ranks of this node
  Link* inter = nullptr;  // this rank's column, one rank of every node; null without a column
  int columns = 1;
};

// Which of `count` elements the rank at `position` of a node has in its slice. The last slices may be
// smaller; a rank without a column has an empty one.
struct ColumnRange {
  size_t begin = 0;
  size_t count = 0;
};
ColumnRange columnRange(size_t count, int columns, int position);

// The slices of `whole`, one for each of the `ranks` of a node.
std::vector<Buffer> columnSlices(Buffer whole, int columns, int ranks);

// What the algorithm does at its two levels: rounding of half types happens once at each.
struct TwoDReductions {
  Reduction intra;
  Reduction inter;
};

// 2D all-reduce, in place. Piece by piece:
//   reduce-scatter inside the node, so that column p holds the node's sum of slice p,
//   all-reduce of slice p across the nodes of column p, all columns side by side,
//   all-gather inside the node.
// While the wire carries one piece, the node works on the next.
// N nodes of g ranks: each node sends 2 (N-1)/N S bytes, each rank a g-th of it; a flat all-reduce
// sends g times as much across nodes, a flat ring (gN-1)/(g(N-1)) times.
void allReduce2d(const OpContext& op, Buffer buffer, const TwoDReductions& reductions,
                 const TwoDLinks& links, size_t pieceBytes);

}  // namespace taco
