#include "csrc/link/mesh_link.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include "csrc/base/fault_point.h"
#include "csrc/base/format.h"
#include "csrc/base/rounding.h"

namespace taco {
namespace {

// What a message may carry at most in the pipelined algorithms: long enough to keep the wire busy
// (0.3 ms at 25 Gbit/s), short enough that the first and the last one do not matter.
constexpr size_t kSmallestPiece = 128 << 10;
constexpr size_t kLargestPiece = 1 << 20;

// A sixteenth of the whole, within the limits.
size_t pieceBytesFor(size_t totalBytes) {
  return std::clamp(totalBytes / 16, kSmallestPiece, kLargestPiece);
}

Buffer sliceOf(Buffer whole, size_t index, size_t numSlices) {
  const size_t each = ceilDiv(whole.count, numSlices);
  const size_t begin = std::min(index * each, whole.count);
  return whole.slice(begin, std::min(each, whole.count - begin));
}

// A whole buffer that is ready from the start, in pieces.
class BufferPieces : public Pieces {
 public:
  BufferPieces(Buffer buffer, size_t pieceBytes)
      : buffer_(buffer),
        pieceElements_(std::max<size_t>(1, pieceBytes / elementBytes(buffer.dtype))) {}
  size_t count() const override {
    return std::max<size_t>(1, ceilDiv(buffer_.count, pieceElements_));
  }
  Buffer ready(size_t piece) override {
    const size_t begin = piece * pieceElements_;
    return buffer_.slice(begin, std::min(pieceElements_, buffer_.count - begin));
  }
  void done(size_t) override {}

 private:
  Buffer buffer_;
  size_t pieceElements_;
};

}  // namespace

// The transfers of one step. A deque, because the mesh keeps pointers to them.
struct MeshLink::Flight {
  Flight(Mesh& theMesh, const OpContext& theOp) : mesh(theMesh), op(theOp) {}

  void send(int peer, uint32_t step, const void* data, size_t bytes) {
    mesh.send(peer, op.call, step, data, bytes, transfers.emplace_back());
  }
  void receive(int peer, uint32_t step, void* data, size_t bytes) {
    mesh.receive(peer, op.call, step, data, bytes, transfers.emplace_back());
  }
  void wait() {
    faultPoint("mesh.posted");
    for (const Transfer& transfer : transfers) mesh.wait(transfer, op.call, op.deadline, op.longWait);
    transfers.clear();
    faultPoint("mesh.done");
  }

  Mesh& mesh;
  const OpContext& op;
  std::deque<Transfer> transfers;
};

MeshLink::MeshLink(std::shared_ptr<Mesh> mesh, std::vector<int> members)
    : mesh_(std::move(mesh)), members_(std::move(members)), scratch_(kPiecesAhead + 1) {
  const auto self = std::find(members_.begin(), members_.end(), mesh_->rank());
  if (self == members_.end()) {
    throw Error(ErrorCode::kInvalidArgument, "a rank made a link that it is not a member of");
  }
  member_ = static_cast<int>(self - members_.begin());
}

std::string MeshLink::describe() const {
  return str(mesh_->transport().kind(), ", ", size(), " ranks");
}

// --- all-reduce ----------------------------------------------------------------------------------

void MeshLink::allReduce(const OpContext& op, Buffer buffer, const Reduction& reduction) {
  BufferPieces pieces(buffer, pieceBytesFor(buffer.bytes()));
  allReducePieces(op, pieces, reduction);
}

// One piece on its way. contribute() sends everybody what it needs of this rank's data, reduce()
// adds up what came (in rank order) and, if only a slice of the piece is this rank's to reduce,
// distributes the result; finish() waits for the others' slices.
class MeshLink::ReducingPiece {
 public:
  ReducingPiece(MeshLink& link, const OpContext& op, Buffer buffer, size_t index,
                std::vector<char>& scratch)
      : link_(link),
        flight_(*link.mesh_, op),
        buffer_(buffer),
        firstStep_(static_cast<uint32_t>(2 * index)),
        scratch_(scratch),
        whole_(link.size() == 2 || buffer.bytes() <= kOneShotBytes) {}

  void contribute() {
    const size_t mineBytes = mine().bytes();
    const size_t needed = mineBytes * static_cast<size_t>(link_.size() - 1);
    if (scratch_.size() < needed) scratch_.resize(needed);
    for (int d = 1; d < link_.size(); ++d) {
      flight_.receive(link_.peer(link_.after(d)), firstStep_, arrival(d), mineBytes);
    }
    for (int d = 1; d < link_.size(); ++d) {
      const Buffer theirs = sliceFor(link_.after(d));
      flight_.send(link_.peer(link_.after(d)), firstStep_, theirs.data, theirs.bytes());
    }
  }

  void reduce(const Reduction& reduction) {
    flight_.wait();
    const Buffer result = mine();
    std::vector<const void*> sources(static_cast<size_t>(link_.size()));
    sources[static_cast<size_t>(link_.rank())] = result.data;
    for (int d = 1; d < link_.size(); ++d) {
      sources[static_cast<size_t>(link_.after(d))] = arrival(d);
    }
    if (result.count > 0) {
      taco::reduce(result.data, sources.data(), link_.size(), result.count, reduction);
    }
    if (whole_) return;
    for (int d = 1; d < link_.size(); ++d) {
      const Buffer theirs = sliceFor(link_.after(d));
      flight_.receive(link_.peer(link_.after(d)), firstStep_ + 1, theirs.data, theirs.bytes());
    }
    for (int d = 1; d < link_.size(); ++d) {
      flight_.send(link_.peer(link_.after(d)), firstStep_ + 1, result.data, result.bytes());
    }
  }

  void finish() { flight_.wait(); }

 private:
  Buffer sliceFor(int member) const {
    if (whole_) return buffer_;
    return sliceOf(buffer_, static_cast<size_t>(member), static_cast<size_t>(link_.size()));
  }
  Buffer mine() const { return sliceFor(link_.rank()); }
  // Where the contribution of the member `distance` after this one arrives.
  char* arrival(int distance) {
    return scratch_.data() + static_cast<size_t>(distance - 1) * mine().bytes();
  }

  MeshLink& link_;
  Flight flight_;
  Buffer buffer_;
  uint32_t firstStep_;
  std::vector<char>& scratch_;
  bool whole_;  // every rank reduces the whole piece
};

// Piece i is contributed while piece i-1 is reduced and piece i-2 distributed.
void MeshLink::allReducePieces(const OpContext& op, Pieces& pieces, const Reduction& reduction) {
  const size_t count = pieces.count();
  std::deque<ReducingPiece> flying;  // the oldest first
  for (size_t i = 0; i < count + kPiecesAhead; ++i) {
    if (i < count) {
      flying.emplace_back(*this, op, pieces.ready(i), i, scratch_[i % scratch_.size()]);
      flying.back().contribute();
      mesh_->poll();
    }
    if (i >= 1 && i - 1 < count) flying[i >= kPiecesAhead ? 1 : 0].reduce(reduction);
    if (i >= kPiecesAhead) {
      flying.front().finish();
      flying.pop_front();
      pieces.done(i - kPiecesAhead);
      mesh_->poll();
    }
  }
}

// --- the other verbs -----------------------------------------------------------------------------

void MeshLink::reduceScatter(const OpContext& op, std::span<const ConstBuffer> parts, Buffer out,
                             const Reduction& reduction) {
  const size_t ranks = members_.size();
  size_t longest = 0;
  for (const ConstBuffer& part : parts) longest = std::max(longest, part.count);
  const size_t element = elementBytes(out.dtype);
  const size_t pieceElements =
      std::max<size_t>(1, pieceBytesFor(longest * element * ranks) / element / ranks);
  const size_t numPieces = std::max<size_t>(1, ceilDiv(longest, pieceElements));
  auto pieceOf = [&](const ConstBuffer& part, size_t i) {
    const size_t begin = std::min(i * pieceElements, part.count);
    return part.slice(begin, std::min(pieceElements, part.count - begin));
  };

  // Two pieces in flight: one on the wire while the other is added up.
  std::deque<Flight> flights;
  auto post = [&](size_t i) {
    Flight& flight = flights.emplace_back(*mesh_, op);
    std::vector<char>& scratch = scratch_[i % 2];
    const size_t bytes = pieceOf(out, i).bytes();
    if (scratch.size() < bytes * (ranks - 1)) scratch.resize(bytes * (ranks - 1));
    for (int d = 1; d < size(); ++d) {
      flight.receive(peer(after(d)), static_cast<uint32_t>(i),
                     scratch.data() + static_cast<size_t>(d - 1) * bytes, bytes);
    }
    for (int d = 1; d < size(); ++d) {
      const ConstBuffer theirs = pieceOf(parts[static_cast<size_t>(after(d))], i);
      flight.send(peer(after(d)), static_cast<uint32_t>(i), theirs.data, theirs.bytes());
    }
  };
  std::vector<const void*> sources(ranks);
  post(0);
  for (size_t i = 0; i < numPieces; ++i) {
    if (i + 1 < numPieces) post(i + 1);
    flights.front().wait();
    flights.pop_front();
    const ConstBuffer own = pieceOf(parts[static_cast<size_t>(member_)], i);
    sources[static_cast<size_t>(member_)] = own.data;
    for (int d = 1; d < size(); ++d) {
      sources[static_cast<size_t>(after(d))] =
          scratch_[i % 2].data() + static_cast<size_t>(d - 1) * own.bytes();
    }
    if (own.count > 0) {
      reduce(out.bytePointer() + i * pieceElements * element, sources.data(), size(), own.count,
             reduction);
    }
  }
}

void MeshLink::allGather(const OpContext& op, ConstBuffer in, std::span<const Buffer> outs) {
  Flight flight(*mesh_, op);
  for (int d = 1; d < size(); ++d) {
    const Buffer& out = outs[static_cast<size_t>(after(d))];
    flight.receive(peer(after(d)), 0, out.data, out.bytes());
  }
  for (int d = 1; d < size(); ++d) flight.send(peer(after(d)), 0, in.data, in.bytes());
  const Buffer& own = outs[static_cast<size_t>(member_)];
  if (own.data != in.data && in.bytes() > 0) {
    mesh_->poll();
    std::memmove(own.data, in.data, in.bytes());
  }
  flight.wait();
}

void MeshLink::broadcast(const OpContext& op, Buffer buffer, int root) {
  if (size() == 2 || buffer.bytes() <= kTreeBytes) {
    broadcastTree(op, buffer, root);
  } else {
    broadcastSliced(op, buffer, root);
  }
}

// Binomial tree: numbered from the root, rank v gets the data from v without its lowest set bit,
// and passes it on to v + 1, v + 2, v + 4 ... below that bit. ceil(log2 P) steps. An empty answer
// comes back the same way: who calls something else is noticed by all, the root as well, and not
// by the operation after this one.
void MeshLink::broadcastTree(const OpContext& op, Buffer buffer, int root) {
  const int number = (member_ - root + size()) % size();
  auto memberOf = [&](int v) { return (v + root) % size(); };
  Flight flight(*mesh_, op);
  int below = 1;
  while (below < size() && (number & below) == 0) below <<= 1;
  if (number != 0) {
    flight.receive(peer(memberOf(number - below)), 0, buffer.data, buffer.bytes());
    flight.wait();
  }
  for (int bit = below >> 1; bit > 0; bit >>= 1) {
    if (number + bit >= size()) continue;
    flight.send(peer(memberOf(number + bit)), 0, buffer.data, buffer.bytes());
    flight.receive(peer(memberOf(number + bit)), 1, nullptr, 0);
  }
  flight.wait();
  if (number != 0) {
    flight.send(peer(memberOf(number - below)), 1, nullptr, 0);
    flight.wait();
  }
}

// The root gives every other rank one slice of each piece, and the ranks pass their slices on to
// each other: the root sends S bytes instead of (P-1) S. At the end they answer, as in the tree.
void MeshLink::broadcastSliced(const OpContext& op, Buffer buffer, int root) {
  BufferPieces pieces(buffer, pieceBytesFor(buffer.bytes()));
  const size_t others = members_.size() - 1;
  auto slice = [&](size_t piece, int member) {
    const int index = (member - root + size()) % size() - 1;
    return sliceOf(pieces.ready(piece), static_cast<size_t>(index), others);
  };
  Flight flight(*mesh_, op);
  const uint32_t answer = static_cast<uint32_t>(2 * pieces.count());
  if (member_ == root) {
    for (int d = 1; d < size(); ++d) flight.receive(peer(after(d)), answer, nullptr, 0);
    for (size_t i = 0; i < pieces.count(); ++i) {
      for (int d = 1; d < size(); ++d) {
        const Buffer theirs = slice(i, after(d));
        flight.send(peer(after(d)), static_cast<uint32_t>(2 * i), theirs.data, theirs.bytes());
      }
    }
    flight.wait();
    return;
  }
  // Every byte has its final place, so all receives are posted at once.
  std::deque<Flight> fromRoot;
  for (size_t i = 0; i < pieces.count(); ++i) {
    const Buffer mine = slice(i, member_);
    fromRoot.emplace_back(*mesh_, op)
        .receive(peer(root), static_cast<uint32_t>(2 * i), mine.data, mine.bytes());
    for (int d = 1; d < size(); ++d) {
      if (after(d) == root) continue;
      const Buffer theirs = slice(i, after(d));
      flight.receive(peer(after(d)), static_cast<uint32_t>(2 * i + 1), theirs.data, theirs.bytes());
    }
  }
  for (size_t i = 0; i < pieces.count(); ++i) {
    fromRoot[i].wait();
    const Buffer mine = slice(i, member_);
    for (int d = 1; d < size(); ++d) {
      if (after(d) == root) continue;
      flight.send(peer(after(d)), static_cast<uint32_t>(2 * i + 1), mine.data, mine.bytes());
    }
  }
  flight.wait();
  flight.send(peer(root), answer, nullptr, 0);
  flight.wait();
}

// Empty ones are sent as well: a rank that expects more than it is sent finds out at once.
void MeshLink::exchange(const OpContext& op, std::span<const ConstBuffer> sends,
                        std::span<const Buffer> receives) {
  const ConstBuffer& own = sends[static_cast<size_t>(member_)];
  const Buffer& place = receives[static_cast<size_t>(member_)];
  Flight flight(*mesh_, op);
  for (int d = 1; d < size(); ++d) {
    const Buffer& from = receives[static_cast<size_t>(after(d))];
    flight.receive(peer(after(d)), 0, from.data, from.bytes());
  }
  for (int d = 1; d < size(); ++d) {
    const ConstBuffer& to = sends[static_cast<size_t>(after(d))];
    flight.send(peer(after(d)), 0, to.data, to.bytes());
  }
  const bool ownFits = own.bytes() == place.bytes();
  if (ownFits && place.data != own.data && own.bytes() > 0) {
    std::memmove(place.data, own.data, own.bytes());
  }
  flight.wait();
  if (ownFits) return;
  // Not before: only peers that this rank is connected to can be told.
  const Error why = sizesDiffer(op.call, peer(member_), own.bytes(), peer(member_), place.bytes());
  fail(why);
  throw why;
}

}  // namespace taco
