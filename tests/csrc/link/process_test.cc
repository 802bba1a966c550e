// Ranks as processes over shared memory: one is killed, one leaves.
#include <fcntl.h>
#include <sys/mount.h>

#include "csrc/base/wait.h"
#include "csrc/link/shm_link.h"
#include "tests/csrc/forked_ranks.h"
#include "tests/csrc/ranks.h"

namespace taco {
namespace {

using namespace taco::testing;
using Catch::Matchers::ContainsSubstring;

constexpr size_t kSlotBytes = 64 << 10;

std::vector<int> everyone(int ranks) {
  std::vector<int> members;
  for (int rank = 0; rank < ranks; ++rank) members.push_back(rank);
  return members;
}

std::unique_ptr<ShmLink> makeLink(KeyValueStore& store, int rank, int ranks,
                                  const AbortSignal& abort) {
  std::string whyNot;
  auto segment = ShmSegment::meet("segment", store, {ranks, kSlotBytes}, everyone(ranks), rank,
                                  Deadline::after(Millis(60000)), &whyNot);
  if (!segment) throw Error(ErrorCode::kSystem, whyNot);
  return std::make_unique<ShmLink>(std::move(segment), everyone(ranks), rank,
                                   WaitPolicy::oversubscribed(), abort);
}

OpContext allReduceOp(uint64_t sequence, size_t count) {
  OpContext op;
  op.call.op = OpKind::kAllReduce;
  op.call.sequence = sequence;
  op.call.count = count;
  op.call.dtype = DType::kFloat32;
  op.deadline = Deadline::after(Millis(60000));
  return op;
}

// All-reduces until an error comes or `many` are done. After each, progress is counted.
void allReduceLoop(Link& link, size_t count, uint64_t many, std::atomic<uint64_t>& progress) {
  const Reduction sum = onlyLevel(ReduceOp::kSum, DType::kFloat32, link.size());
  for (uint64_t i = 1; i <= many; ++i) {
    std::vector<float> data(count, static_cast<float>(link.rank() + 1));
    link.allReduce(allReduceOp(i, count), {data.data(), count, DType::kFloat32}, sum);
    const auto expected = static_cast<float>(link.size() * (link.size() + 1) / 2);
    for (const float one : data) {
      if (one != expected) throw Error(ErrorCode::kSystem, str("wrong: ", one));
    }
    progress = i;
  }
}

TEST_CASE("ranks as processes get right results and leave nothing in /dev/shm") {
  FileStore store;
  const auto before = shmNames();
  ForkedRanks ranks(4, [&](int rank, ForkedRanks::Shared& shared) {
    AbortSignal abort;
    auto link = makeLink(store, rank, 4, abort);
    allReduceLoop(*link, 7, 200, shared.progress[rank]);
    for (uint64_t i = 1; i <= 20; ++i) {
      std::vector<float> data(100003, 1.0f);
      link->allReduce(allReduceOp(1000 + i, data.size()),
                      {data.data(), data.size(), DType::kFloat32},
                      onlyLevel(ReduceOp::kSum, DType::kFloat32, 4));
      for (const float one : data) {
        if (one != 4.0f) return str("wrong: ", one);
      }
    }
    return std::string("fine");
  });
  for (int rank = 0; rank < 4; ++rank) CHECK(ranks.outcome(rank) == "fine");
  CHECK(shmLeftovers(before) == std::set<std::string>{});
}

TEST_CASE("a rank that is killed in the middle is named by all others within two seconds") {
  for (const size_t count : {3, 100000}) {
    for (const int victim : {0, 2}) {
      FileStore store;
      ForkedRanks ranks(3, [&](int rank, ForkedRanks::Shared& shared) {
        AbortSignal abort;
        auto link = makeLink(store, rank, 3, abort);
        std::string text = "finished?";
        try {
          allReduceLoop(*link, count, UINT64_MAX, shared.progress[rank]);
        } catch (const Error& error) {
          text = str(name(error.code()), "|", error.rank(), "|", error.what());
        }
        shared.seconds[rank] =
            std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
        return text;
      });
      REQUIRE(eventually([&] { return ranks.shared().progress[1].load() > 50; }));
      const double killed = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
      ranks.kill(victim);
      for (int rank = 0; rank < 3; ++rank) {
        const std::string outcome = ranks.outcome(rank);
        INFO("rank " << rank << ", killed " << victim << ": " << outcome);
        if (rank == victim) {
          CHECK(outcome == "killed by signal 9");
          continue;
        }
        CHECK_THAT(outcome, Catch::Matchers::StartsWith("peer failed|"));
        CHECK_THAT(outcome, ContainsSubstring(str("rank ", victim, " died")));
        CHECK(ranks.shared().seconds[rank] - killed < 2.0);
      }
    }
  }
}

TEST_CASE("a rank that leaves in order is said to have left") {
  FileStore store;
  ForkedRanks ranks(3, [&](int rank, ForkedRanks::Shared& shared) {
    AbortSignal abort;
    auto link = makeLink(store, rank, 3, abort);
    allReduceLoop(*link, 10, rank == 1 ? 20 : 21, shared.progress[rank]);
    return std::string("fine");
  });
  CHECK(ranks.outcome(1) == "fine");
  for (const int rank : {0, 2}) {
    CHECK_THAT(ranks.outcome(rank), ContainsSubstring("rank 1 has left the group"));
  }
}

TEST_CASE("a child forked by a rank neither keeps it alive nor kills it") {
  FileStore store;
  ForkedRanks ranks(2, [&](int rank, ForkedRanks::Shared& shared) {
    AbortSignal abort;
    auto link = makeLink(store, rank, 2, abort);
    allReduceLoop(*link, 10, 5, shared.progress[rank]);
    if (rank == 0) {
      const pid_t child = ::fork();  // as a DataLoader's worker is
      if (child == 0) {
        link.reset();  // must not say that its parent has left
        ::_exit(0);
      }
      ::waitpid(child, nullptr, 0);
      const pid_t longChild = ::fork();
      if (longChild == 0) {
        ::alarm(20);
        ::pause();
        ::_exit(0);
      }
      shared.word = longChild;
    }
    for (uint64_t i = 100; i < 200; ++i) {
      std::vector<float> data(10, 1.0f);
      link->allReduce(allReduceOp(i, 10), {data.data(), 10, DType::kFloat32},
                      onlyLevel(ReduceOp::kSum, DType::kFloat32, 2));
    }
    if (rank == 0) ::raise(SIGKILL);  // its child lives on, with the same descriptor
    std::vector<float> data(10, 1.0f);
    link->allReduce(allReduceOp(200, 10), {data.data(), 10, DType::kFloat32},
                    onlyLevel(ReduceOp::kSum, DType::kFloat32, 2));
    return std::string("finished?");
  });
  CHECK_THAT(ranks.outcome(1), ContainsSubstring("rank 0 died"));
  ::kill(ranks.shared().word.load(), SIGKILL);
}

TEST_CASE("the last rank alive hears of the failure although the failed one is gone") {
  FileStore store;
  ForkedRanks ranks(3, [&](int rank, ForkedRanks::Shared& shared) {
    AbortSignal abort;
    auto link = makeLink(store, rank, 3, abort);
    allReduceLoop(*link, 10, 5, shared.progress[rank]);
    if (rank == 0) {
      link->fail(Error(ErrorCode::kSystem, "out of paper"));
      return std::string("told");
    }
    // Whether rank 0's process is still there or not.
    allReduceLoop(*link, 10, 5, shared.progress[rank]);
    return std::string("finished?");
  });
  for (const int rank : {1, 2}) {
    CHECK_THAT(ranks.outcome(rank), ContainsSubstring("rank 0 failed: out of paper"));
  }
}

// Runs `body` in a process with a /dev/shm of its own; what it returns.
std::string withShmMount(const char* options, const std::function<std::string()>& body) {
  ForkedRanks process(1, [&](int, ForkedRanks::Shared&) {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", "/dev/shm", "tmpfs", 0, options) != 0) {
      return std::string("skipped");
    }
    return body();
  });
  return process.outcome(0);
}

TEST_CASE("a /dev/shm without room is said on all ranks, and no rank dies of it") {
  const std::string outcome = withShmMount("size=64k", [] {
    MemoryStore store;
    std::string texts[3];
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        std::string whyNot;
        auto segment = ShmSegment::meet("s", store, {3, 1 << 20}, {0, 1, 2}, rank,
                                        Deadline::after(Millis(20000)), &whyNot);
        texts[rank] = segment ? "made?" : whyNot;
      });
    }
    for (auto& thread : threads) thread.join();
    std::string all;
    for (const std::string& text : texts) all += text + "\n";
    return all + str(shmNames().size(), " left");
  });
  if (outcome == "skipped") {
    WARN("skipped: no right to mount a file system");
    return;
  }
  INFO(outcome);
  size_t said = 0;
  for (size_t at = outcome.find("cannot reserve"); at != std::string::npos;
       at = outcome.find("cannot reserve", at + 1)) {
    ++said;
  }
  CHECK(said == 3);
  CHECK_THAT(outcome, ContainsSubstring("No space left"));
  CHECK_THAT(outcome, ContainsSubstring("--shm-size"));
  CHECK_THAT(outcome, ContainsSubstring("0 left"));
}

TEST_CASE("a read-only /dev/shm is said as well") {
  const std::string outcome = withShmMount("ro", [] {
    MemoryStore store;
    std::string whyNot;
    auto segment =
        ShmSegment::meet("s", store, {2, 4096}, {0, 1}, 0, Deadline::after(Millis(1000)), &whyNot);
    return segment ? std::string("made?") : whyNot;
  });
  if (outcome == "skipped") {
    WARN("skipped: no right to mount a file system");
    return;
  }
  CHECK_THAT(outcome, ContainsSubstring("cannot create /dev/shm/taco-"));
  CHECK_THAT(outcome, ContainsSubstring("Read-only"));
}

TEST_CASE("a rank that does not attach is named, and the file is gone") {
  const auto before = shmNames();
  MemoryStore store;
  const Outcomes outcomes = tryRanks(3, [&](int rank) {
    if (rank == 2) return;
    std::string whyNot;
    ShmSegment::meet("s", store, {3, 4096}, {4, 5, 6}, rank, Deadline::after(Millis(2000)), &whyNot);
  });
  for (const int rank : {0, 1}) {
    const Error error = outcomes.error(rank);
    CHECK(error.code() == ErrorCode::kTimeout);
    CHECK_THAT(error.what(), ContainsSubstring("Timed out after 2000 ms"));
    CHECK_THAT(error.what(), ContainsSubstring("rank(s) 6 did not attach"));
  }
  CHECK(shmLeftovers(before) == std::set<std::string>{});
}

TEST_CASE("a member that waits for the first one's word gives up in time") {
  MemoryStore store;
  std::string whyNot;
  const Error error = errorOf([&] {
    ShmSegment::meet("s", store, {2, 4096}, {0, 1}, 1, Deadline::after(Millis(20)), &whyNot);
  });
  CHECK(error.code() == ErrorCode::kTimeout);
}

TEST_CASE("a segment's failure: the first reason wins, long ones are cut") {
  MemoryStore store;
  std::unique_ptr<ShmSegment> segments[2];
  runRanks(2, [&](int rank) {
    std::string whyNot;
    segments[rank] = ShmSegment::meet("s", store, {2, 4096}, {0, 1}, rank,
                                      Deadline::after(Millis(60000)), &whyNot);
  });
  CHECK_FALSE(segments[0]->failure());
  segments[1]->fail(Error(ErrorCode::kMismatch, std::string(5000, 'x'), 0), 1);
  segments[0]->fail(Error(ErrorCode::kSystem, "second"), 0);
  for (const auto& segment : segments) {
    REQUIRE(segment->failure());
    CHECK(segment->failure()->code() == ErrorCode::kMismatch);
    CHECK(segment->failure()->rank() == 1);
    const std::string what = segment->failure()->what();
    CHECK(what.size() > 900);
    CHECK(what.size() < 1024);
    CHECK(what.find_first_not_of('x') == std::string::npos);
  }
  CHECK(segments[0]->whyGone(1) == nullptr);
  segments[1].reset();
  CHECK_THAT(segments[0]->whyGone(1), ContainsSubstring("has left the group"));
}

}  // namespace
}  // namespace taco
