#pragma once

#include <memory>
#include <string>
#include <vector>

#include "csrc/allreduce/two_d.h"
#include "csrc/base/abort.h"
#include "csrc/link/link.h"
#include "csrc/link/shm_link.h"
#include "csrc/settings/settings.h"
#include "csrc/topology/key_value_store.h"
#include "csrc/topology/topology.h"
#include "csrc/transport/mesh.h"

namespace taco {

// What the links of a group are made from.
struct LinkParts {
  int rank = 0;
  const Settings* settings = nullptr;
  const Topology* topology = nullptr;
  KeyValueStore* store = nullptr;
  const AbortSignal* abort = nullptr;
  std::shared_ptr<Mesh> mesh;  // dropped if no link needs it
};

// The links of one rank: one over all ranks and, where the grid has use for them, the two of the
// 2D all-reduce. A link is shared memory where all its members share memory, else a mesh.
class Links {
 public:
  // Collective over the group.
  Links(const LinkParts& parts, const Deadline& deadline);

  Link& flat() { return *flat_; }
  const TwoDLinks& twoD() const { return twoD_; }

  void fail(const Error& why);
  void close(std::chrono::milliseconds maxWait);
  void describe(std::vector<std::string>& lines) const;
  uint64_t sharedMemoryBytes() const;
  uint64_t networkBytes() const;

 private:
  std::unique_ptr<Link> make(const LinkParts& parts, const std::string& name,
                             std::vector<int> members, const Deadline& deadline);

  std::shared_ptr<Mesh> mesh_;
  bool meshUsed_ = false;
  std::vector<ShmLink*> shmLinks_;
  std::vector<std::string> notes_;
  std::unique_ptr<Link> flat_;
  std::unique_ptr<Link> intra_;
  std::unique_ptr<Link> inter_;
  TwoDLinks twoD_;
};

}  // namespace taco
