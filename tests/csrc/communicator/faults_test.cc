// A rank ends in every way at every point: all others say who and in what, in time, leave nothing
// behind, and can make a new group in the same processes.
//
// The ranks are forked processes. A case takes milliseconds where the kernel tells of the death, and
// a timeout where only that can (a stopped process; a rank that is missing while the group is made);
// those wait beside each other.
#include <dirent.h>
#include <sys/resource.h>

#include <cstdlib>
#include <deque>
#include <string>
#include <string_view>

#include "tests/csrc/communicator/fault_cases.h"
#include "tests/csrc/forked_ranks.h"

namespace taco {
namespace {

using namespace taco::testing;

// Is `rank` in one of the text's lists "rank 3", "ranks 1, 3", "rank(s) 1, 3", "ranks: 1, 3"?
bool namesRank(const std::string& text, int rank) {
  for (size_t at = text.find("rank"); at != std::string::npos; at = text.find("rank", at)) {
    at += 4;
    for (const std::string_view ending : {"(s)", "s", ":"}) {
      if (text.compare(at, ending.size(), ending) == 0) at += ending.size();
    }
    if (at >= text.size() || text[at] != ' ') continue;
    do {
      at += text[at] == ',' ? 2 : 1;  // ", " or " "
      size_t digits = 0;
      while (at + digits < text.size() && text[at + digits] >= '0' && text[at + digits] <= '9') ++digits;
      if (digits == 0) break;
      if (text.substr(at, digits) == std::to_string(rank)) return true;
      at += digits;
    } while (text.compare(at, 2, ", ") == 0);
  }
  return false;
}

TEST_CASE("the sweep knows whether a text names a rank") {
  for (const char* text : {"rank 3 died", "ranks 1, 3", "rank(s) 0, 3, 4 are missing", "ranks: 3", "x rank 1; rank 3"}) {
    CHECK(namesRank(text, 3));
  }
  for (const char* text : {"rank 13", "rank 30", "ranks 1, 2 and 3 s", "3", "ranking 3", "rank", "rank ", "rank 1, "}) {
    CHECK_FALSE(namesRank(text, 3));
  }
}

constexpr Millis kTimeout{20000};
constexpr Millis kShortTimeout{3000};  // where it has to be waited for
constexpr Millis kSlack{2000};         // how late a rank may be (the issue's own figure)

// One store in another's folder, for the group that the survivors make.
class PrefixedStore : public KeyValueStore {
 public:
  PrefixedStore(std::shared_ptr<KeyValueStore> store, std::string prefix)
      : store_(std::move(store)), prefix_(std::move(prefix)) {}
  void set(const std::string& key, const std::string& value) override {
    store_->set(prefix_ + key, value);
  }
  std::string get(const std::string& key, const Deadline& deadline) override {
    return store_->get(prefix_ + key, deadline);
  }
  std::optional<std::string> peek(const std::string& key) override {
    return store_->peek(prefix_ + key);
  }
  int64_t add(const std::string& key, int64_t amount) override {
    return store_->add(prefix_ + key, amount);
  }

 private:
  std::shared_ptr<KeyValueStore> store_;
  std::string prefix_;
};

size_t entriesOf(const char* folder) {
  size_t count = 0;
  DIR* const open = ::opendir(folder);
  while (open != nullptr && ::readdir(open) != nullptr) ++count;
  if (open != nullptr) ::closedir(open);
  return count;
}

// What a process holds that a group might leave behind.
struct Holdings {
  size_t descriptors = entriesOf("/proc/self/fd");
  size_t threads = entriesOf("/proc/self/task");
  bool maps = false;

  Holdings() {
    std::ifstream lines("/proc/self/maps");
    for (std::string line; std::getline(lines, line);) {
      maps |= line.find("/dev/shm/taco-") != std::string::npos;
    }
  }
  bool operator==(const Holdings&) const = default;
  std::string describe() const {
    return str(descriptors, " descriptors, ", threads, " threads", maps ? ", a segment" : "");
  }
};

CommunicatorConfig configOf(const FaultCase& one, int rank, std::shared_ptr<KeyValueStore> store) {
  CommunicatorConfig config;
  config.rank = rank;
  config.size = ranksOf(one.layout);
  config.store = std::move(store);
  config.environment = environmentOf(one.layout, rank);
  config.environment["TACO_DUMP_DIR"] = "none";
  config.timeout = one.waits() ? kShortTimeout : kTimeout;
  return config;
}

// What the victim does; returns the error it saw, or "" if it came to its end.
std::string victimsLife(const FaultCase& one, int rank, std::shared_ptr<KeyValueStore> store) {
  try {
    if (one.place.stage == Stage::kBeforeInit) {
      setFaultPoint("before init", 1, one.kind);
      faultPoint("before init");
    }
    if (one.place.stage == Stage::kInit) setFaultPoint(one.place.point, one.place.nth, one.kind);
    Communicator self(configOf(one, rank, std::move(store)));
    runOn(self, [](Collectives& c) { allReduceOnes(c); });
    if (one.place.stage > Stage::kInit) setFaultPoint(one.place.point, one.place.nth, one.kind);
    if (one.place.stage == Stage::kDestroy) {
      self.shutdown();
      return "";
    }
    for (int i = 0; i < 20; ++i) faultOperations()[one.place.operation].run(self, rank);
    expect(false, "the fault point was not reached");
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// What the others do: "seconds too late or 0|what the error says".
std::string survivorsLife(const FaultCase& one, int rank, std::shared_ptr<KeyValueStore> store) {
  const CommunicatorConfig config = configOf(one, rank, std::move(store));
  std::string said;
  auto fails = [&](const std::function<void()>& call) {
    const auto began = Clock::now();
    try {
      call();
      return false;
    } catch (const Error& error) {
      said = str(name(error.code()), ": ", error.what());
    }
    const auto took = std::chrono::duration_cast<Millis>(Clock::now() - began);
    said = str(took > config.timeout + kSlack ? took.count() : 0, "|", said);
    return true;
  };
  std::unique_ptr<Communicator> self;
  if (fails([&] { self = std::make_unique<Communicator>(config); })) return said;
  if (fails([&] { runOn(*self, [](Collectives& c) { allReduceOnes(c); }); })) return said;
  while (!fails([&] {
    faultOperations()[one.place.operation].run(*self, rankOf(one.victim, one.layout));
  })) {
  }
  return said;
}

// All that is left of the group works together in a new one.
void newGroupOfSurvivors(const FaultCase& one, int rank,
                         const std::shared_ptr<KeyValueStore>& store) {
  const int victim = rankOf(one.victim, one.layout);
  CommunicatorConfig config;
  config.rank = rank < victim ? rank : rank - 1;
  config.size = ranksOf(one.layout) - 1;
  config.store = std::make_shared<PrefixedStore>(store, "second/");
  config.environment = environmentOf(one.layout, rank);
  config.environment["TACO_DUMP_DIR"] = "none";
  config.timeout = kTimeout;
  Communicator self(config);
  runOn(self, [](Collectives& c) { allReduceOnes(c, kSmall); });
  runOn(self, [](Collectives& c) { allReduceOnes(c, kLarge); });
}

// One case under way.
class Running {
 public:
  explicit Running(const FaultCase& one) : case_(one), store_(std::make_shared<FileStore>()) {
    const auto body = [one, store = store_](int rank, ForkedRanks::Shared&) {
      const rlimit none{0, 0};
      ::setrlimit(RLIMIT_CORE, &none);
      const Holdings before;
      const bool isVictim = rank == rankOf(one.victim, one.layout);
      const std::string said =
          isVictim ? victimsLife(one, rank, store) : survivorsLife(one, rank, store);
      setFaultPoint("", 1, FaultAction::kThrow);
      if (!isVictim) newGroupOfSurvivors(one, rank, store);
      // A thread that was joined may be seen for a moment longer.
      std::string left;
      if (!eventually([&] { return Holdings() == before; }, Millis(5000))) {
        left = str(" LEFT BEHIND: ", Holdings().describe(), " instead of ", before.describe());
      }
      return said + left;
    };
    ranks_ = std::make_unique<ForkedRanks>(ranksOf(one.layout), body);
  }

  // Empty, or what was wrong.
  std::string finish() {
    const int victim = rankOf(case_.victim, case_.layout);
    std::string wrong;
    for (int rank = 0; rank < ranksOf(case_.layout); ++rank) {
      if (rank != victim) wrong += survivorsFault(rank, victim, ranks_->outcome(rank));
    }
    ranks_->signal(victim, SIGCONT);
    const std::string ended = ranks_->outcome(victim);
    const bool bySignal = case_.kind == FaultAction::kKill || case_.kind == FaultAction::kCrash;
    if (bySignal != (ended.rfind("killed by signal", 0) == 0) ||
        ended.find("LEFT BEHIND") != std::string::npos ||
        ended.find("was not reached") != std::string::npos) {
      wrong += str("\n  the victim: ", ended);
    }
    return wrong.empty() ? "" : str(case_.describe(), wrong);
  }

 private:
  std::string survivorsFault(int rank, int victim, const std::string& outcome) const {
    const std::string where = str("\n  rank ", rank, ": ");
    if (outcome.rfind("0|", 0) != 0) return str(where, "too late, or no answer: ", outcome);
    const bool making = outcome.find("making the group") != std::string::npos;
    const bool names = namesRank(outcome, victim);
    const bool operation =
        making || outcome.find(faultOperations()[case_.place.operation].name) != std::string::npos ||
        outcome.find("all_reduce") != std::string::npos;
    if (!names) return str(where, "does not name the victim: ", outcome);
    if (!operation) return str(where, "does not name the operation: ", outcome);
    if (outcome.find("LEFT BEHIND") != std::string::npos) return where + outcome;
    return "";
  }

  FaultCase case_;
  std::shared_ptr<FileStore> store_;
  std::unique_ptr<ForkedRanks> ranks_;
};

void sweep(std::vector<FaultCase> cases) {
  const auto before = shmNames();
  // Those that wait take no CPU: many at a time.
  std::stable_partition(cases.begin(), cases.end(), [](const auto& one) { return one.waits(); });
  const size_t kMostWaiting = 24;
  const size_t kMostBusy = 12;
  std::deque<std::unique_ptr<Running>> running;
  std::string wrong;
  auto finishOldest = [&] {
    const std::string trouble = running.front()->finish();
    if (!trouble.empty()) wrong += trouble + "\n";
    running.pop_front();
  };
  for (const FaultCase& one : cases) {
    while (running.size() >= (one.waits() ? kMostWaiting : kMostBusy)) finishOldest();
    running.push_back(std::make_unique<Running>(one));
  }
  while (!running.empty()) finishOldest();
  INFO(cases.size() << " cases");
  CHECK(wrong == "");
  CHECK(shmLeftovers(before) == std::set<std::string>{});
}

TEST_CASE("every pair of: how a rank ends, where, which one, in which layout") {
  sweep(coveringCases(allFaultCases()));
}

// Half an hour of waiting for time-outs, many at a time: `make soak` runs it.
TEST_CASE("every combination of them", "[.full]") { sweep(allFaultCases()); }

}  // namespace
}  // namespace taco
