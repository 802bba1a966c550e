#include "csrc/allreduce/two_d.h"

#include <algorithm>

#include "csrc/base/fault_point.h"
#include "csrc/base/rounding.h"

namespace taco {
namespace {

// The pieces of the buffer as the column's all-reduce sees them: ready() is the reduce-scatter,
// done() the all-gather of the node.
class NodePieces : public Pieces {
 public:
  NodePieces(const OpContext& op, Buffer buffer, const Reduction& intra, const TwoDLinks& links,
             size_t pieceElements)
      : op_(op), buffer_(buffer), intra_(intra), links_(links), pieceElements_(pieceElements) {}

  size_t count() const override {
    return std::max<size_t>(1, (buffer_.count + pieceElements_ - 1) / pieceElements_);
  }

  Buffer ready(size_t piece) override {
    const std::vector<Buffer> slices = slicesOf(piece);
    const Buffer mine = slices[static_cast<size_t>(links_.intra->rank())];
    const std::vector<ConstBuffer> parts(slices.begin(), slices.end());
    links_.intra->reduceScatter(op_, parts, mine, intra_);
    faultPoint("2d.scattered");
    return mine;
  }

  void done(size_t piece) override {
    faultPoint("2d.crossed");
    const std::vector<Buffer> slices = slicesOf(piece);
    links_.intra->allGather(op_, slices[static_cast<size_t>(links_.intra->rank())], slices);
  }

 private:
  std::vector<Buffer> slicesOf(size_t piece) const {
    const Buffer whole = buffer_.slice(piece * pieceElements_,
                                       std::min(pieceElements_, buffer_.count - piece * pieceElements_));
    return columnSlices(whole, links_.columns, links_.intra->size());
  }

  const OpContext& op_;
  Buffer buffer_;
  const Reduction& intra_;
  const TwoDLinks& links_;
  size_t pieceElements_;
};

}  // namespace

ColumnRange columnRange(size_t count, int columns, int position) {
  if (position >= columns) return {count, 0};
  const size_t each = ceilDiv(count, static_cast<size_t>(columns));
  const size_t begin = std::min(static_cast<size_t>(position) * each, count);
  return {begin, std::min(each, count - begin)};
}

std::vector<Buffer> columnSlices(Buffer whole, int columns, int ranks) {
  std::vector<Buffer> slices;
  for (int position = 0; position < ranks; ++position) {
    const ColumnRange range = columnRange(whole.count, columns, position);
    slices.push_back(whole.slice(range.begin, range.count));
  }
  return slices;
}

void allReduce2d(const OpContext& op, Buffer buffer, const TwoDReductions& reductions,
                 const TwoDLinks& links, size_t pieceBytes) {
  const size_t pieceElements = std::max<size_t>(1, pieceBytes / elementBytes(buffer.dtype));
  NodePieces pieces(op, buffer, reductions.intra, links, pieceElements);
  if (links.inter != nullptr) {
    links.inter->allReducePieces(op, pieces, reductions.inter);
  } else {
    runPieces(pieces, [](size_t, Buffer) {});
  }
}

}  // namespace taco
