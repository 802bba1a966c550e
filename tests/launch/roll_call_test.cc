// E3 over a store in memory. The processes come one after the other: get() of a key that is not
// there is where a real one would wait; here the member is called again after the others.
#include "launch/roll_call.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/launch/launching.h"

namespace taco {
namespace {

using namespace taco::testing;

// A store between threads. Patience is a time after which get() gives up.
class MemoryStore final : public RollCallStore {
 public:
  explicit MemoryStore(std::chrono::milliseconds patience) : patience_(patience) {}

  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    texts_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, patience_, [&] { return texts_.count(key) > 0; })) {
      throw RollCallTimeout("no such key");
    }
    return texts_[key];
  }
  int64_t add(const std::string& key, int64_t amount) override {
    ++operations;
    const std::lock_guard lock(mutex_);
    return counts_[key] += amount;
  }

  std::atomic<int> operations{0};

 private:
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<std::string, std::string> texts_;
  std::map<std::string, int64_t> counts_;
};

constexpr std::chrono::seconds kLong{60};

// What each member's roll call ended with: "" or the text of its error.
std::vector<std::string> callAll(RollCallStore& store, const std::vector<Member>& members) {
  std::vector<std::string> ends(members.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < members.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        rollCall(store, members[i]);
      } catch (const LaunchError& error) {
        ends[i] = std::string(name(error.rule())) + ": " + error.what();
      } catch (const RollCallTimeout& timeout) {
        ends[i] = std::string("timeout: ") + timeout.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

TEST_CASE("a complete job passes, with a few operations a process") {
  MemoryStore store(kLong);
  std::vector<Member> members;
  for (int rank = 0; rank < 16; ++rank)
    members.push_back({rank, 16, "host", 100 + rank, "torchrun"});
  for (const std::string& end : callAll(store, members)) CHECK(end.empty());
  CHECK(store.operations == 3 * 16);
  MemoryStore alone(kLong);
  CHECK_NOTHROW(rollCall(alone, {0, 1, "host", 1, "single"}));
}

TEST_CASE(
    "E3: a duplicate rank is an error on every process, and both hosts are named "
    "(accelerate#2362)") {
  MemoryStore store(kLong);
  const auto ends = callAll(store, {{0, 3, "host-a", 10, "torch"},
                                    {1, 3, "host-b", 11, "torch"},
                                    {1, 3, "host-c", 12, "torch"}});
  for (const std::string& end : ends) {
    CHECK_THAT(end, Catch::Matchers::ContainsSubstring("E3: rank 1 is there twice"));
    CHECK_THAT(end, Catch::Matchers::ContainsSubstring("process 11 on host 'host-b'"));
    CHECK_THAT(end, Catch::Matchers::ContainsSubstring("process 12 on host 'host-c'"));
  }
}

TEST_CASE("E3: a duplicate that comes when the job is complete is told alone") {
  MemoryStore store(kLong);
  for (const std::string& end : callAll(store, {{0, 2, "a", 1, ""}, {1, 2, "b", 2, ""}})) {
    CHECK(end.empty());
  }
  refusal(LaunchRule::kE3,
          [&] {
            rollCall(store, {0, 2, "c", 3, ""});
          },
          {"rank 0 is there twice", "'a'", "'c'"});
}

TEST_CASE("E3: world sizes that differ, on every process, with both") {
  MemoryStore store(kLong);
  const auto ends = callAll(store, {{0, 4, "host-a", 10, "ti-ddp"}, {1, 2, "host-b", 11, "torch"}});
  for (const std::string& end : ends) {
    CHECK_THAT(end,
               Catch::Matchers::ContainsSubstring("E3: the processes of this job do not agree"));
    CHECK_THAT(end, Catch::Matchers::ContainsSubstring("'host-a' (launch row ti-ddp)"));
    CHECK_THAT(end, Catch::Matchers::ContainsSubstring("'host-b' (launch row torch)"));
    CHECK_THAT(end, Catch::Matchers::ContainsSubstring("'4'"));
    CHECK_THAT(end, Catch::Matchers::ContainsSubstring("'2'"));
  }
}

TEST_CASE("ranks that do not come are named when the store loses its patience") {
  MemoryStore store(std::chrono::milliseconds(20));
  const auto ends = callAll(store, {{0, 4, "a", 1, ""}, {2, 4, "b", 2, ""}});
  for (const std::string& end : ends) {
    CHECK_THAT(end, Catch::Matchers::ContainsSubstring(
                        "timeout: of 4 ranks, these did not come: 1 and 3"));
  }
  MemoryStore large(std::chrono::milliseconds(20));
  const auto end = callAll(large, {{0, 1000, "a", 1, ""}})[0];
  CHECK_THAT(end, Catch::Matchers::ContainsSubstring("of 1000 ranks, these and others"));
}

}  // namespace
}  // namespace taco
