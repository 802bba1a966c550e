// What a TopK all-reduce has not sent yet, for every buffer of a group on this rank.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "csrc/data/dtype.h"
#include "csrc/topk/meter.h"
#include "csrc/topk/select.h"

namespace taco {

// Which memory a residual belongs to. The caller chooses `storage` so that it means one storage for
// as long as that lives and no other one afterwards (an address would not do), and calls forget()
// when it dies. 0: memory that nobody knows.
struct BufferIdentity {
  uint64_t storage = 0;
  uint64_t offsetBytes = 0;
  uint64_t layout = 0;  // of the elements in the storage: 0 where they lie one after the other
  explicit operator bool() const { return storage != 0; }
};

struct ResidualKey {
  uint64_t storage = 0;
  uint64_t offsetBytes = 0;
  uint64_t layout = 0;
  uint64_t count = 0;
  DType dtype = DType::kFloat32;
  auto operator<=>(const ResidualKey&) const = default;
};

// Flat: of this rank's whole buffer. 2D: of this rank's slice, of the sum over its node. One cannot
// stand for the other.
enum class ResidualDomain : uint8_t { kFlat, k2d };
const char* name(ResidualDomain domain);

// One buffer's state between two all-reduces. Used by the thread that runs the group's collectives.
struct Residual {
  ResidualDomain domain = ResidualDomain::kFlat;
  size_t begin = 0;              // in the buffer: where the rank's slice begins
  std::vector<float> values;     // r, one for each element of the slice
  std::vector<float> momentum;   // u of DGC's momentum correction; empty: not used
  Selector selector;             // remembers the threshold

  void clear();              // r = 0, u = 0
  void scale(float factor);  // r and u times it; 0 clears, whatever they are
  size_t bytes() const { return (values.size() + momentum.size()) * sizeof(float); }
};

struct ResidualStats {
  size_t count = 0;  // buffers
  size_t bytes = 0;
  double norm = 0;   // Euclidean, over all of them
};

// Thread-safe, so that buffers may die while an all-reduce runs.
class Residuals {
 public:
  // The buffer's, zero at the first call and where its slice or domain has changed.
  std::shared_ptr<Residual> of(const ResidualKey& key, ResidualDomain domain, size_t begin,
                               size_t count);
  std::shared_ptr<Residual> find(const ResidualKey& key) const;  // null where there is none
  std::vector<std::shared_ptr<Residual>> all() const;
  void forget(uint64_t storage);
  void clear();  // an all-reduce that runs keeps its own until it is over
  ResidualStats stats() const;

  // How many all-reduces of this size and dtype came before this one: the same on every rank, unlike
  // how often a buffer has been seen.
  uint64_t nextStep(uint64_t count, DType dtype);

  TopkMeter& meter() { return meter_; }

 private:
  mutable std::mutex mutex_;  // guards the maps, not what they hold
  std::map<ResidualKey, std::shared_ptr<Residual>> residuals_;
  std::map<std::pair<uint64_t, DType>, uint64_t> steps_;
  TopkMeter meter_;
};

}  // namespace taco
