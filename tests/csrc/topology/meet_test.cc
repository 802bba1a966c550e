#include <atomic>
#include <thread>

#include "csrc/topology/fields.h"
#include "csrc/topology/topology.h"
#include "tests/csrc/forked_ranks.h"
#include "tests/csrc/ranks.h"

namespace taco {
namespace {

using namespace taco::testing;
using Catch::Matchers::ContainsSubstring;
using Environment = std::map<std::string, std::string>;

// Counts what the ranks ask of the store, and may change what they say.
class CountingStore : public MemoryStore {
 public:
  void set(const std::string& key, const std::string& value) override {
    ++sets;
    MemoryStore::set(key, change ? change(key, value) : value);
  }
  std::string get(const std::string& key, const Deadline& deadline) override {
    ++gets;
    return MemoryStore::get(key, deadline);
  }
  std::function<std::string(const std::string&, const std::string&)> change;
  std::atomic<int> sets{0};
  std::atomic<int> gets{0};
};

Topology meetAs(int rank, int size, KeyValueStore& store, const Environment& environment,
                Millis timeout = Millis(60000)) {
  return meet({rank, size, {str("ordered ", rank), str("p2p ", rank)}}, store,
              readSettings(environment), environment, Deadline::after(timeout));
}

std::vector<Topology> meetAll(int size, KeyValueStore& store,
                              const std::function<Environment(int)>& environment) {
  std::vector<Topology> all(static_cast<size_t>(size));
  runRanks(size, [&](int rank) {
    all[static_cast<size_t>(rank)] = meetAs(rank, size, store, environment(rank));
  });
  for (const Topology& one : all) {
    CHECK(one.grid.nodes == all[0].grid.nodes);
    CHECK(one.grid.memoryOfRank == all[0].grid.memoryOfRank);
    CHECK(one.addresses == all[0].addresses);
    CHECK(one.hosts == all[0].hosts);
    CHECK(one.secret == all[0].secret);
  }
  return all;
}

using Nodes = std::vector<std::vector<int>>;

TEST_CASE("ranks meet: everybody knows everybody, and who shares memory") {
  const auto before = shmNames();
  for (int size = 1; size <= 6; ++size) {
    CountingStore store;
    const auto all = meetAll(size, store, [](int) { return Environment{}; });
    const Topology& topology = all[0];
    CHECK(topology.grid.worldSize() == size);
    CHECK(topology.grid.numNodes() == 1);
    CHECK(topology.addresses.size() == 2);
    for (int rank = 0; rank < size; ++rank) {
      CHECK(topology.addresses[0].at(static_cast<size_t>(rank)) == str("ordered ", rank));
      CHECK(topology.addresses[1].at(static_cast<size_t>(rank)) == str("p2p ", rank));
      CHECK_THAT(topology.hosts.at(static_cast<size_t>(rank)), ContainsSubstring("pid "));
    }
    CHECK(topology.secret.size() == (size == 1 ? 0 : 16));
    // Two rounds of `size` sets and 2 (size - 1) gets.
    CHECK(store.sets.load() == (size == 1 ? 0 : 2 * size));
    CHECK(store.gets.load() == 4 * (size - 1));
  }
  CHECK(shmLeftovers(before) == std::set<std::string>{});
}

TEST_CASE("two groups have two secrets") {
  CountingStore one;
  CountingStore two;
  const auto environment = [](int) { return Environment{}; };
  CHECK(meetAll(2, one, environment)[0].secret != meetAll(2, two, environment)[0].secret);
}

TEST_CASE("the node id splits nodes, also interleaved ones, and TACO_SHM=0 takes no second round") {
  CountingStore store;
  const auto split = meetAll(4, store, [](int rank) {
    return Environment{{"TACO_NODE_ID", rank < 2 ? "a" : "b"}};
  });
  CHECK(split[0].grid.nodes == Nodes{{0, 1}, {2, 3}});
  CountingStore interleaved;
  CHECK(meetAll(5, interleaved,
                [](int rank) {
                  return Environment{{"TACO_NODE_ID", str(rank % 2)}};
                })[0]
            .grid.nodes == Nodes{{0, 2, 4}, {1, 3}});
  CountingStore withoutShm;
  const auto none = meetAll(4, withoutShm, [](int) { return Environment{{"TACO_SHM", "0"}}; });
  CHECK(none[0].grid.nodes == Nodes{{0}, {1}, {2}, {3}});
  CHECK_THAT(none[0].memoryNote, ContainsSubstring("TACO_SHM=0"));
  CHECK(withoutShm.sets.load() == 4);
  CHECK(withoutShm.gets.load() == 6);
}

TEST_CASE("LIGHT_INTRA_SIZE shapes the grid and not what shares memory") {
  CountingStore store;
  const auto all = meetAll(5, store, [](int) { return Environment{{"LIGHT_INTRA_SIZE", "2"}}; });
  CHECK(all[0].grid.nodes == Nodes{{0, 1}, {2, 3}, {4}});
  CHECK(all[0].grid.shareMemory({0, 1, 2, 3, 4}));
  CountingStore apart;
  const auto none = meetAll(4, apart, [](int) {
    return Environment{{"LIGHT_INTRA_SIZE", "2"}, {"TACO_SHM", "0"}};
  });
  CHECK(none[0].grid.nodes == Nodes{{0, 1}, {2, 3}});
  CHECK_FALSE(none[0].grid.shareMemory({0, 1}));
}

TEST_CASE("ranks that do not come are named on every rank that did, in time") {
  const auto before = shmNames();
  CountingStore store;
  const auto began = Clock::now();
  const Outcomes outcomes = tryRanks(6, [&](int rank) {
    if (rank == 2 || rank == 5) return;
    meetAs(rank, 6, store, {}, Millis(2000));
  });
  CHECK(Clock::now() - began < std::chrono::seconds(20));
  for (const int rank : {0, 1, 3, 4}) {
    const Error error = outcomes.error(rank);
    INFO(error.what());
    CHECK(error.code() == ErrorCode::kTimeout);
    CHECK_THAT(error.what(), ContainsSubstring("Timed out after 2000 ms"));
    CHECK_THAT(error.what(), ContainsSubstring("rank(s) 2, 5 of 6 did not come"));
  }
  CHECK(shmLeftovers(before) == std::set<std::string>{});
}

TEST_CASE("a missing rank 0 is named as well") {
  CountingStore store;
  const Outcomes outcomes = tryRanks(3, [&](int rank) {
    if (rank != 0) meetAs(rank, 3, store, {}, Millis(2000));
  });
  for (const int rank : {1, 2}) {
    const Error error = outcomes.error(rank);
    CHECK(error.code() == ErrorCode::kTimeout);
    CHECK(error.rank() == 0);
    CHECK_THAT(error.what(), ContainsSubstring("Timed out after 2000 ms"));
    CHECK_THAT(error.what(), ContainsSubstring("rank 0 did not come"));
  }
}

TEST_CASE("settings that differ are the same error on all ranks") {
  struct Example {
    Environment odd;
    Environment others;
    const char* text;
  };
  const std::vector<Example> examples = {
      {{{"LIGHT_INTRA_SIZE", "2"}}, {}, "LIGHT_INTRA_SIZE differs"},
      {{{"LIGHT_2D_ALLREDUCE", "0"}}, {{"LIGHT_2D_ALLREDUCE", "1"}}, "'1' on rank 0"},
      {{{"TACO_SHM", "0"}}, {{"TACO_SHM", ""}}, "not set on rank 0"},
      {{}, {{"LIGHT_HIERARCHICAL_THRESHOLD", "7"}}, "not set on rank 2"},
  };
  for (const Example& example : examples) {
    CountingStore store;
    const Outcomes outcomes = tryRanks(
        4, [&](int rank) { meetAs(rank, 4, store, rank == 2 ? example.odd : example.others); });
    for (int rank = 0; rank < 4; ++rank) {
      const Error error = outcomes.error(rank);
      INFO(error.what());
      CHECK(error.code() == ErrorCode::kInvalidSettings);
      CHECK(error.what() == outcomes.what(0));
      CHECK_THAT(error.what(), ContainsSubstring(example.text));
      CHECK_THAT(error.what(), ContainsSubstring("rank 0"));
      CHECK_THAT(error.what(), ContainsSubstring("rank 2"));
    }
  }
  CountingStore store;
  CHECK_NOTHROW(meetAll(3, store, [](int rank) {
    return Environment{{"TACO_LOG", rank == 1 ? "error" : "warn"},
                       {"TACO_SOCKET_IFNAME", str("eth", rank)}};
  }));
}

// Whatever rank 1 or rank 0 says in the store: every rank gets a taco::Error, and soon.
TEST_CASE("damaged records are errors on all ranks") {
  using Change = std::function<std::string(const std::string&)>;
  const std::vector<std::pair<const char*, Change>> changes = {
      {"identity/1", [](const std::string&) { return std::string(); }},
      {"identity/1", [](const std::string&) { return std::string("nonsense"); }},
      {"identity/1",
       [](const std::string&) {
         return pack({"a", "b"});
       }},
      {"identity/1",
       [](const std::string& value) {  // settings that are no list
         auto fields = unpack(value);
         fields[8] = "x";
         return pack(fields);
       }},
      {"identity/1",
       [](const std::string& value) {  // another version's table
         auto fields = unpack(value);
         fields[8] = pack({"TACO_OTHER", ""});
         return pack(fields);
       }},
      {"identity/1",
       [](const std::string& value) {  // addresses that are no list
         auto fields = unpack(value);
         fields[9] = "9:x";
         return pack(fields);
       }},
      {"identity/1",
       [](const std::string& value) {  // one lane instead of two
         auto fields = unpack(value);
         fields[9] = pack({"only one"});
         return pack(fields);
       }},
      {"identity/answer", [](const std::string&) { return std::string("what?"); }},
      {"identity/answer",
       [](const std::string&) {
         return pack({"ok", ""});
       }},
      {"identity/answer",
       [](const std::string&) {
         return pack({"ok", pack({"secret"})});
       }},
      {"identity/answer",
       [](const std::string&) {
         return pack({"ok", pack({"secret", pack({"one"})})});
       }},
      {"memory/answer",
       [](const std::string&) {
         return pack({"ok", pack({"0"})});
       }},
      {"memory/answer",
       [](const std::string&) {
         return pack({"ok", pack({"0", "0", "0", "0", "0"})});
       }},
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    const auto& [where, change] = changes[i];
    CountingStore store;
    store.change = [&, where = std::string(where), change = change](const std::string& key,
                                                                    const std::string& value) {
      return key == where ? change(value) : value;
    };
    const bool answer = std::string(where).find("answer") != std::string::npos;
    // Rank 0 does not hear its own answer, and may wait for the others in the next round.
    const Millis timeout(std::string(where) == "identity/answer" ? 500 : 20000);
    const Outcomes outcomes = tryRanks(3, [&](int rank) { meetAs(rank, 3, store, {}, timeout); });
    for (int rank = 0; rank < 3; ++rank) {
      INFO("change " << i << " of " << where << ", rank " << rank);
      if (answer && rank == 0) continue;  // it knows what it said itself
      const Error error = outcomes.error(rank);
      INFO(error.what());
      CHECK(error.code() == ErrorCode::kPeerFailed);
    }
  }
}

TEST_CASE("who claims to share memory with nobody that can be is an error on all ranks") {
  for (const char* const strange : {"", "-1", "7", "x", "1x", "99999999999999999999", "2"}) {
    CountingStore store;
    store.change = [&](const std::string& key, const std::string& value) {
      return key == "memory/1" ? std::string(strange) : value;
    };
    const Outcomes outcomes = tryRanks(3, [&](int rank) { meetAs(rank, 3, store, {}); });
    for (int rank = 0; rank < 3; ++rank) {
      CHECK(outcomes.error(rank).code() == ErrorCode::kPeerFailed);
      CHECK_THAT(outcomes.what(rank), ContainsSubstring("rank 1 shares memory with rank '"));
    }
  }
}

TEST_CASE("ranks as processes meet, and leave no proof behind") {
  const auto before = shmNames();
  FileStore store;
  ForkedRanks ranks(3, [&](int rank, ForkedRanks::Shared&) {
    return meetAs(rank, 3, store, {}).grid.describe();
  });
  for (int rank = 0; rank < 3; ++rank) CHECK(ranks.outcome(rank) == "1 node x 3 ranks: [0-2]");
  CHECK(shmLeftovers(before) == std::set<std::string>{});
}

TEST_CASE("more ranks than CPUs is known to all of them") {
  const size_t cpus = std::thread::hardware_concurrency();
  CountingStore store;
  const int size = static_cast<int>(cpus) + 1;
  for (const Topology& one : meetAll(size, store, [](int) { return Environment{}; })) {
    CHECK(one.oversubscribed);
  }
  CountingStore alone;
  CHECK_FALSE(meetAs(0, 1, alone, {}).oversubscribed);
}

}  // namespace
}  // namespace taco
