#pragma once

#include <memory>
#include <vector>

#include "csrc/link/link.h"
#include "csrc/transport/mesh.h"

namespace taco {

// Ranks that reach each other through channels (between nodes: TCP). Every pair talks directly; all
// are equally far from one another in a data centre's network, and direct exchange sends no more
// bytes than a ring, takes 2 steps instead of 2 (P-1), and lets the owner of a slice add all
// contributions at once, in rank order, and round once.
//
// Bytes sent per rank, P ranks, S bytes:
//   all-reduce      2 (P-1)/P S (P = 2, and up to kOneShotBytes: (P-1) S, in one step)
//   reduce-scatter  (P-1)/P S    all-gather  (P-1) times its own part
//   broadcast       the root S, the others (P-2)/(P-1) S; up to kTreeBytes along a binomial tree
class MeshLink : public Link {
 public:
  // `members`: ranks in the group, ascending; the mesh may have more. Links on one mesh with
  // different members may be used in turn, by one thread.
  MeshLink(std::shared_ptr<Mesh> mesh, std::vector<int> members);

  int rank() const override { return member_; }
  int size() const override { return static_cast<int>(members_.size()); }
  std::string describe() const override;

  void allReduce(const OpContext& op, Buffer buffer, const Reduction& reduction) override;
  void allReducePieces(const OpContext& op, Pieces& pieces, const Reduction& reduction) override;
  void reduceScatter(const OpContext& op, std::span<const ConstBuffer> parts, Buffer out,
                     const Reduction& reduction) override;
  void allGather(const OpContext& op, ConstBuffer in, std::span<const Buffer> outs) override;
  void broadcast(const OpContext& op, Buffer buffer, int root) override;
  void exchange(const OpContext& op, std::span<const ConstBuffer> sends,
                std::span<const Buffer> receives) override;
  void fail(const Error& why) override { mesh_->fail(why); }

  // All-reduces up to this many bytes: everybody sends everything to everybody, one step.
  static constexpr size_t kOneShotBytes = 8 << 10;
  // Broadcasts up to this many bytes go along a tree; larger ones are cut into slices.
  static constexpr size_t kTreeBytes = 64 << 10;

 private:
  struct Flight;  // posted transfers of one step
  class ReducingPiece;

  int after(int distance) const { return (member_ + distance) % size(); }
  int peer(int member) const { return members_[static_cast<size_t>(member)]; }
  void broadcastTree(const OpContext& op, Buffer buffer, int root);
  void broadcastSliced(const OpContext& op, Buffer buffer, int root);

  std::shared_ptr<Mesh> mesh_;
  std::vector<int> members_;
  int member_;
  std::vector<std::vector<char>> scratch_;  // kept between operations, one for each piece in flight
};

}  // namespace taco
