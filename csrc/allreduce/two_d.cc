#include "csrc/allreduce/two_d.h"

#include <algorithm>

#include "csrc/base/fault_point.h"

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
  // One slice for each rank of the node; ranks without a column get an empty one.
  std::vector<Buffer> slicesOf(size_t piece) const {
    const Buffer whole = buffer_.slice(piece * pieceElements_,
                                       std::min(pieceElements_, buffer_.count - piece * pieceElements_));
    const size_t columns = static_cast<size_t>(links_.columns);
    const size_t each = (whole.count + columns - 1) / columns;
    std::vector<Buffer> slices;
    for (size_t position = 0; position < static_cast<size_t>(links_.intra->size()); ++position) {
      const size_t begin = std::min(std::min(position, columns) * each, whole.count);
      const size_t count = position < columns ? std::min(each, whole.count - begin) : 0;
      slices.push_back(whole.slice(begin, count));
    }
    return slices;
  }

  const OpContext& op_;
  Buffer buffer_;
  const Reduction& intra_;
  const TwoDLinks& links_;
  size_t pieceElements_;
};

}  // namespace

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
