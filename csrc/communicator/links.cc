#include "csrc/communicator/links.h"

#include <algorithm>
#include <numeric>

#include "csrc/allreduce/policy.h"
#include "csrc/base/format.h"
#include "csrc/link/mesh_link.h"
#include "csrc/link/solo_link.h"

namespace taco {
namespace {

// Of each of a rank's two slots: 1 MiB a rank and link in all. Larger windows leave the caches and
// win nothing (docs/performance.md). Many ranks get smaller ones, so that a link stays below half
// of the 64 MB that /dev/shm has in a docker container.
size_t slotBytes(size_t members) {
  return std::clamp<size_t>((16 << 20) / members / 4096 * 4096, 64 << 10, 512 << 10);
}

}  // namespace

Links::Links(const LinkParts& parts, const Deadline& deadline) : mesh_(parts.mesh) {
  const Grid& grid = parts.topology->grid;
  std::vector<int> everyone(static_cast<size_t>(grid.worldSize()));
  std::iota(everyone.begin(), everyone.end(), 0);
  flat_ = make(parts, "flat", everyone, deadline);

  // The smallest request tells whether any may be 2D: the threshold only excludes large ones.
  const AllreduceRequest smallest;
  if (chooseAllreduce(smallest, grid, *parts.settings).algorithm == AllreduceAlgorithm::k2d) {
    const size_t self = static_cast<size_t>(parts.rank);
    const std::vector<int>& node = grid.nodes[static_cast<size_t>(grid.nodeOfRank[self])];
    intra_ = make(parts, "intra", node, deadline);
    twoD_.intra = intra_.get();
    twoD_.columns = grid.smallestNode();
    const int column = grid.positionOfRank[self];
    if (column < twoD_.columns) {
      std::vector<int> members;
      for (const auto& other : grid.nodes) members.push_back(other[static_cast<size_t>(column)]);
      inter_ = make(parts, "inter", members, deadline);
      twoD_.inter = inter_.get();
    }
  }
  if (!meshUsed_) mesh_.reset();
}

std::unique_ptr<Link> Links::make(const LinkParts& parts, const std::string& name,
                                  std::vector<int> members, const Deadline& deadline) {
  if (members.size() == 1) return std::make_unique<SoloLink>();
  const Grid& grid = parts.topology->grid;
  if (parts.settings->useShm && grid.shareMemory(members)) {
    const int member = static_cast<int>(
        std::find(members.begin(), members.end(), parts.rank) - members.begin());
    const ShmSegment::Layout layout{static_cast<int>(members.size()), slotBytes(members.size())};
    std::string whyNot;
    auto segment = ShmSegment::meet(str("segment/", name, "/", members[0]), *parts.store, layout,
                                    members, member, deadline, &whyNot);
    if (segment) {
      auto link = std::make_unique<ShmLink>(
          std::move(segment), members, member,
          parts.topology->oversubscribed ? WaitPolicy::oversubscribed()
                                         : WaitPolicy::coresToSpare(),
          *parts.abort);
      shmLinks_.push_back(link.get());
      return link;
    }
    log(LogLevel::kWarn, str("no shared memory for the ", name, " link of rank ", parts.rank,
                             ", the network stack is used instead: ", whyNot));
    notes_.push_back(str(name, ": ", whyNot));
  }
  meshUsed_ = true;
  return std::make_unique<MeshLink>(mesh_, std::move(members));
}

void Links::fail(const Error& why) {
  flat_->fail(why);
  if (intra_) intra_->fail(why);
  if (inter_) inter_->fail(why);
}

void Links::close(std::chrono::milliseconds maxWait) {
  for (ShmLink* link : shmLinks_) link->leave();
  if (mesh_) mesh_->close(maxWait);
}

void Links::describe(std::vector<std::string>& lines) const {
  lines.push_back(str("all ranks: ", flat_->describe()));
  if (intra_) lines.push_back(str("inside the node: ", intra_->describe()));
  if (inter_) lines.push_back(str("across nodes: ", inter_->describe()));
  if (intra_ && !inter_) lines.push_back("across nodes: none on this rank (its node is larger)");
  for (const std::string& note : notes_) lines.push_back(note);
}

uint64_t Links::sharedMemoryBytes() const {
  uint64_t bytes = 0;
  for (const ShmLink* link : shmLinks_) bytes += link->bytesShared();
  return bytes;
}

uint64_t Links::networkBytes() const { return mesh_ ? mesh_->transport().bytesSent() : 0; }

}  // namespace taco
