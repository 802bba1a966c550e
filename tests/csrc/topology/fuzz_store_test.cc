// What ranks read in the store: a value, or an Error, whatever stands there. Meant to run under the
// sanitizers too.
#include <mutex>

#include "csrc/base/process_id.h"
#include "csrc/topology/fields.h"
#include "csrc/topology/node_proof.h"
#include "csrc/topology/topology.h"
#include "tests/csrc/fuzzing.h"
#include "tests/csrc/ranks.h"

namespace taco {
namespace {

using namespace taco::testing;

TEST_CASE("fuzz: records in the store") {
  Fuzz fuzz("records in the store", 10000);
  int accepted = 0;
  int refused = 0;
  for (int i = 0; i < fuzz.cases(); ++i) {
    std::vector<std::string> fields;
    for (size_t n = fuzz.below(5); n > 0; --n) fields.push_back(fuzz.bytes(fuzz.below(30)));
    const std::string whole = pack(fields);
    if (unpack(whole) != fields) FAIL("case " << i << ": not what was packed");
    try {
      // Written down again it is read in the same way.
      const std::vector<std::string> read = unpack(fuzz.mutated(whole));
      if (unpack(pack(read)) != read) FAIL("case " << i << ": read in two ways");
      ++accepted;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kPeerFailed) FAIL("case " << i << ": " << error.what());
      ++refused;
    }
  }
  CHECK(accepted > 0);
  CHECK(refused > 0);
}

// Gives back what was once said under each key, after an accident.
class Liar : public KeyValueStore {
 public:
  void set(const std::string& key, const std::string& value) override {
    std::lock_guard<std::mutex> lock(mutex_);
    truth_[key] = value;
  }
  std::string get(const std::string& key, const Deadline&) override {
    const auto value = peek(key);
    if (!value) throw Error(ErrorCode::kTimeout, "nobody said '" + key + "'");
    return *value;
  }
  std::optional<std::string> peek(const std::string& key) override {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = truth_.find(key);
    if (found == truth_.end()) return std::nullopt;
    return fuzz && fuzz->chance(70) ? fuzz->mutated(found->second) : found->second;
  }
  int64_t add(const std::string&, int64_t amount) override { return amount; }

  std::map<std::string, std::string> truth_;
  Fuzz* fuzz = nullptr;

 private:
  std::mutex mutex_;
};

// A store that lets the ranks wait for each other, and remembers all.
class Recorder : public MemoryStore {
 public:
  void set(const std::string& key, const std::string& value) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      said[key] = value;
    }
    MemoryStore::set(key, value);
  }
  std::map<std::string, std::string> said;

 private:
  std::mutex mutex_;
};

TEST_CASE("fuzz: making a group out of a store that lies") {
  constexpr int kSize = 3;
  const std::vector<std::string> addresses = {"127.0.0.1:4567 x", "[::1]:4568 x"};
  Recorder recorder;
  runRanks(kSize, [&](int rank) {
    meet({rank, kSize, addresses}, recorder, Settings(), {}, Deadline::after(Millis(20000)));
  });

  Fuzz fuzz("a store that lies", 600);
  int met = 0;
  int refused = 0;
  for (int i = 0; i < fuzz.cases(); ++i) {
    Liar liar;
    liar.truth_ = recorder.said;
    liar.fuzz = &fuzz;
    try {
      const int rank = static_cast<int>(fuzz.below(kSize));
      const Topology topology =
          meet({rank, kSize, addresses}, liar, Settings(), {}, Deadline::after(Millis(1000)));
      ++met;
      // Whatever was said: what comes out is whole.
      bool whole = topology.hosts.size() == kSize && topology.addresses.size() == 2 &&
                   topology.secret.size() == 16 && topology.grid.worldSize() == kSize;
      for (const auto& lane : topology.addresses) whole &= lane.size() == kSize;
      size_t ranks = 0;
      for (const auto& node : topology.grid.nodes) ranks += node.size();
      if (!whole || ranks != kSize) FAIL("seed " << fuzz.seed() << ", case " << i << ": not whole");
    } catch (const Error&) {
      ++refused;
    }
  }
  CHECK(met > 0);
  CHECK(refused > 0);
}

TEST_CASE("fuzz: proofs at any path") {
  const NodeProof proof;
  REQUIRE_FALSE(proof.path().empty());
  Fuzz fuzz("paths of proofs", 5000);
  const std::vector<std::string> others = {proof.path(),
                                           "/dev/zero",
                                           "/dev/shm",
                                           "/etc/passwd",
                                           "/dev/shm/../../etc/passwd",
                                           "",
                                           "/dev/shm/taco-proof-" + std::string(32, 'a')};
  for (int i = 0; i < fuzz.cases(); ++i) {
    const std::string path = fuzz.chance(50) ? fuzz.oneOf(others) : fuzz.mutated(proof.path());
    const std::string token = fuzz.chance(50) ? proof.token() : fuzz.mutated(proof.token());
    const bool holds = NodeProof::holds(path, token);
    if (holds != (path == proof.path() && token == proof.token()))
      FAIL("case " << i << ": " << path);
  }
}

}  // namespace
}  // namespace taco
