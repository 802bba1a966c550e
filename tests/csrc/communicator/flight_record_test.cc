#include "csrc/communicator/flight_record.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "tests/csrc/catch.h"
#include "tests/csrc/ranks.h"

namespace taco {
namespace {

using namespace taco::testing;

constexpr size_t kCapacity = FlightRecord::kCapacity;

Call allReduceCall(uint64_t sequence) {
  Call call;
  call.op = OpKind::kAllReduce;
  call.dtype = DType::kFloat32;
  call.hasReduceOp = 1;
  call.reduceOp = ReduceOp::kMax;
  call.sequence = sequence;
  call.count = 3 * sequence;
  return call;
}

Clock::time_point at(int64_t seconds) { return Clock::time_point(std::chrono::seconds(seconds)); }

TEST_CASE("flight record: an operation goes from queued to done") {
  const auto record = std::make_unique<FlightRecord>();
  CHECK(record->operations().empty());
  const uint64_t number = record->queue(7, "taco:all_reduce", at(1));

  auto only = [&] {
    const auto all = record->operations();
    REQUIRE(all.size() == 1);
    return all[0];
  };
  CHECK(only().state == FlightState::kQueued);
  CHECK(only().kind == FlightKind::kNotKnownYet);
  CHECK(only().group == 7);
  CHECK(std::string(only().title) == "taco:all_reduce");
  CHECK(only().queued == at(1));
  CHECK(only().started == Clock::time_point{});

  record->start(number, allReduceCall(5), 15, at(2));
  CHECK(only().state == FlightState::kStarted);
  CHECK(only().kind == FlightKind::kCollective);
  CHECK(only().call == allReduceCall(5));
  CHECK(only().elements == 15);
  CHECK(only().started == at(2));

  record->finish(number, at(3));
  CHECK(only().state == FlightState::kDone);
  CHECK(only().finished == at(3));
  CHECK(only().error.empty());
  CHECK(record->forgotten() == 0);
}

TEST_CASE("flight record: the first reason of a failure stays, cut off where there is no room") {
  const auto record = std::make_unique<FlightRecord>();
  const uint64_t number = record->queue(1, nullptr, at(1));
  record->fail(number, std::string(1000, 'x').c_str(), at(2));
  record->fail(number, "a consequence", at(3));
  const auto all = record->operations();
  REQUIRE(all.size() == 1);
  CHECK(all[0].state == FlightState::kFailed);
  CHECK(all[0].error == std::string(FlightRecord::kErrorBytes - 1, 'x'));
  CHECK(all[0].finished == at(2));
  CHECK(all[0].title == nullptr);
}

TEST_CASE("flight record: sends and receives") {
  const auto record = std::make_unique<FlightRecord>();
  Call message;
  message.sequence = 4;
  message.count = 10;
  message.dtype = DType::kInt64;
  message.root = -1;
  const uint64_t number = record->post(2, FlightKind::kReceive, message, -77, at(1));
  CHECK(record->operations()[0].state == FlightState::kStarted);
  record->setPeer(number, 3);
  record->finish(number, at(2));
  const FlightOperation one = record->operations()[0];
  CHECK(one.kind == FlightKind::kReceive);
  CHECK(one.call.root == 3);
  CHECK(one.tag == -77);
  CHECK(one.elements == 10);
  CHECK(one.started == at(1));
  CHECK(one.state == FlightState::kDone);
}

TEST_CASE("flight record: the last 2,000 stay, and an overtaken one changes nothing") {
  const auto record = std::make_unique<FlightRecord>();
  const uint64_t old = record->queue(1, "old", at(1));
  for (uint64_t i = 1; i <= kCapacity + 500; ++i) {
    record->start(record->queue(1, nullptr, at(2)), allReduceCall(i), i, at(2));
  }
  const auto before = record->operations();
  REQUIRE(before.size() == kCapacity);
  CHECK(record->forgotten() == 501);
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i].call.sequence != 501 + i || before[i].number != 501 + i) FAIL("out of order");
  }
  record->start(old, allReduceCall(1), 1, at(3));
  record->finish(old, at(3));
  record->fail(old, "late", at(3));
  const auto after = record->operations();
  REQUIRE(after.size() == kCapacity);
  for (size_t i = 0; i < after.size(); ++i) {
    if (after[i].call != before[i].call || after[i].state != FlightState::kStarted) {
      FAIL("a place that is another operation's was written");
    }
  }
}

TEST_CASE("flight record: what is not over fails with its group, and nothing else does") {
  const auto record = std::make_unique<FlightRecord>();
  const uint64_t done = record->queue(1, nullptr, at(1));
  record->finish(done, at(1));
  record->queue(1, nullptr, at(1));
  record->start(record->queue(1, nullptr, at(1)), allReduceCall(2), 6, at(1));
  record->queue(2, nullptr, at(1));
  record->failRest(1, "the group was destroyed", at(5));
  const auto all = record->operations();
  REQUIRE(all.size() == 4);
  CHECK(all[0].state == FlightState::kDone);
  CHECK(all[1].state == FlightState::kFailed);
  CHECK(all[2].state == FlightState::kFailed);
  CHECK(all[2].error == "the group was destroyed");
  CHECK(all[3].state == FlightState::kQueued);
}

TEST_CASE("flight record: many threads write, one reads, and no operation is a mixture") {
  const auto record = std::make_unique<FlightRecord>();
  constexpr int kThreads = 4;
  constexpr uint64_t kEach = 5000;
  std::atomic<int> running{kThreads};
  std::atomic<uint64_t> mixtures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 1; i <= kEach; ++i) {
        const auto now = at(static_cast<int64_t>(i));
        const uint64_t number = record->queue(static_cast<uint32_t>(t), "x", now);
        record->start(number, allReduceCall(i), 3 * i, now);
        if (i % 3 == 0) {
          record->fail(number, std::string(100, static_cast<char>('a' + i % 26)).c_str(), now);
        } else {
          record->finish(number, now);
        }
      }
      running.fetch_sub(1);
    });
  }
  auto look = [&] {
    uint64_t last = 0;
    for (const FlightOperation& one : record->operations()) {
      const bool queued = one.state == FlightState::kQueued;
      const uint64_t i = one.call.sequence;
      bool ok = one.number >= last && one.group < kThreads;
      ok &= queued ? one.kind == FlightKind::kNotKnownYet && one.elements == 0
                   : one.call == allReduceCall(i) && one.elements == 3 * i &&
                         one.queued == at(static_cast<int64_t>(i)) && one.started == one.queued;
      if (one.state == FlightState::kFailed) {
        ok &= i % 3 == 0 && one.error == std::string(100, static_cast<char>('a' + i % 26));
      }
      if (!ok) mixtures.fetch_add(1);
      last = one.number + 1;
    }
  };
  while (running.load() > 0) look();
  for (std::thread& thread : threads) thread.join();
  look();
  CHECK(mixtures.load() == 0);
  // One that met a writer which was put to sleep in the middle may have gone unrecorded.
  CHECK(record->operations().size() <= kCapacity);
  CHECK(record->operations().size() >= kCapacity - 2 * kThreads);
  CHECK(record->forgotten() == kThreads * kEach - kCapacity);
}

TEST_CASE("flight record: a forked child begins an empty one") {
  FlightRecord& record = FlightRecord::ofProcess();
  record.queue(1, nullptr, at(1));
  const size_t before = record.operations().size();
  REQUIRE(before > 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const bool empty = record.operations().empty() && record.forgotten() == 0;
    record.queue(2, nullptr, at(2));
    const bool one = record.operations().size() == 1 && record.operations()[0].group == 2;
    ::_exit(empty && one ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(record.operations().size() == before);
}

}  // namespace
}  // namespace taco
