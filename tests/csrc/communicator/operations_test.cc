// Every operation of a group, in every layout, synchronous and asynchronous ones mixed.
#include <random>

#include "tests/csrc/communicator/group.h"

namespace taco {
namespace {

using namespace taco::testing;

int32_t valueOf(size_t operation, size_t rank, size_t i) {
  return static_cast<int32_t>((operation * 1009 + rank * 7 + i * 13) % 10007);
}

std::vector<int32_t> values(size_t operation, size_t rank, size_t count) {
  std::vector<int32_t> data(count);
  for (size_t i = 0; i < count; ++i) data[i] = valueOf(operation, rank, i);
  return data;
}

constexpr size_t kNumKinds = 11;

// Operation `number` of the group: its kind, root and size follow from the number alone.
void operate(Collectives& c, size_t number, size_t count) {
  const size_t ranks = static_cast<size_t>(c.size());
  const size_t self = static_cast<size_t>(c.rank());
  const size_t root = number / kNumKinds % ranks;
  const bool isRoot = self == root;
  const int rootRank = static_cast<int>(root);
  const std::vector<int32_t> mine = values(number, self, count);
  auto total = [&](size_t i) {
    int32_t sum = 0;
    for (size_t r = 0; r < ranks; ++r) sum += valueOf(number, r, i);
    return sum;
  };
  // All ranks' parts, filled or not, and views of them.
  std::vector<std::vector<int32_t>> parts(ranks);
  std::vector<Buffer> views;
  std::vector<ConstBuffer> constViews;
  auto makeParts = [&](auto make) {
    for (size_t r = 0; r < ranks; ++r) parts[r] = make(r);
    for (auto& part : parts) views.push_back(view(part));
    constViews.assign(views.begin(), views.end());
  };
  std::vector<int32_t> data = mine;
  bool right = true;
  switch (number % kNumKinds) {
    case 0:
      c.allReduce(view(data), {});
      for (size_t i = 0; i < count; ++i) right &= data[i] == total(i);
      break;
    case 1:
      c.allReduce(view(data), {ReduceOp::kMax});
      for (size_t i = 0; i < count; ++i) {
        int32_t most = 0;
        for (size_t r = 0; r < ranks; ++r) most = std::max(most, valueOf(number, r, i));
        right &= data[i] == most;
      }
      break;
    case 2:
      if (!isRoot) data.assign(count, -1);
      c.broadcast(view(data), rootRank);
      right = data == values(number, root, count);
      break;
    case 3:
      c.reduce(view(data), view(data), {}, rootRank);
      for (size_t i = 0; i < count; ++i) right &= data[i] == (isRoot ? total(i) : mine[i]);
      break;
    case 4:
      makeParts([&](size_t) { return std::vector<int32_t>(count); });
      c.allGather(view(data), views);
      for (size_t r = 0; r < ranks; ++r) right &= parts[r] == values(number, r, count);
      break;
    case 5:
      makeParts([&](size_t r) { return std::vector<int32_t>(count / (r + 1)); });
      data.resize(parts[self].size());
      c.allGather(view(data), views);
      for (size_t r = 0; r < ranks; ++r) right &= parts[r] == values(number, r, parts[r].size());
      break;
    case 6:
      if (isRoot) makeParts([&](size_t) { return std::vector<int32_t>(count); });
      c.gather(view(data), views, rootRank);
      for (size_t r = 0; isRoot && r < ranks; ++r) right &= parts[r] == values(number, r, count);
      break;
    case 7:
      if (isRoot) makeParts([&](size_t r) { return values(number + r, root, count); });
      data.assign(count, -1);
      c.scatter(constViews, view(data), rootRank);
      right = data == values(number + self, root, count);
      break;
    case 8:
      makeParts([&](size_t r) { return values(number, self + r, count); });
      data.assign(count, -1);
      c.reduceScatter(constViews, view(data), {});
      for (size_t i = 0; i < count; ++i) {
        int32_t sum = 0;
        for (size_t r = 0; r < ranks; ++r) sum += valueOf(number, r + self, i);
        right &= data[i] == sum;
      }
      break;
    case 9: {
      auto size = [&](size_t from, size_t to) { return (from + 2 * to) % 3 * count / 2; };
      makeParts([&](size_t r) { return std::vector<int32_t>(size(r, self)); });
      std::vector<std::vector<int32_t>> out;
      for (size_t r = 0; r < ranks; ++r) out.push_back(values(number + r, self, size(self, r)));
      std::vector<ConstBuffer> sends;
      for (auto& one : out) sends.push_back(view(one));
      c.allToAll(sends, views);
      for (size_t r = 0; r < ranks; ++r)
        right &= parts[r] == values(number + self, r, size(r, self));
      break;
    }
    case 10:
      c.barrier();
      break;
  }
  expect(right, str("operation ", number, " of kind ", number % kNumKinds, " with ", count,
                    " elements is wrong"));
}

TEST_CASE("every operation in every layout, synchronous and asynchronous ones mixed") {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const Layout& layout : layouts()) {
      INFO(layout.name << ", " << ranks << " ranks");
      Group group(ranks, layout.environment);
      std::mt19937 random(3);
      std::vector<size_t> counts;
      for (size_t i = 0; i < 200; ++i) {
        counts.push_back(random() % 20 == 0 ? random() % 200000 : random() % 300);
      }
      runRanks(ranks, [&](int rank) {
        std::mt19937 ownRandom(static_cast<uint32_t>(rank));
        std::vector<TicketPtr> tickets;
        for (size_t i = 0; i < counts.size(); ++i) {
          const auto mode = ownRandom() % 3 == 0 ? Mode::kSync : Mode::kAsync;
          tickets.push_back(issue(group[rank], mode, Millis(0), [&, i](Collectives& c) {
            operate(c, i, counts[i]);
            if (i % 50 == 7) operate(c, i + 1000, 5);  // several verbs in one body
          }));
          if (mode == Mode::kSync) expect(tickets.back()->isDone(), "not done");
        }
        for (const TicketPtr& ticket : tickets) {
          expect(ticket->wait(Deadline::after(Millis(90000))), "never done");
          if (const auto error = ticket->error()) throw *error;
        }
        expect(group[rank].sequence() == counts.size(), "another number of operations");
        expect(!group[rank].failure(), "failed");
      });
    }
  }
}

TEST_CASE("a group says what it is") {
  Group group(4, layouts()[2].environment);
  for (int rank = 0; rank < 4; ++rank) {
    const std::string text = group[rank].describe();
    INFO(text);
    CHECK_THAT(text, Catch::Matchers::ContainsSubstring("2 nodes x 2 ranks: [0 1] [2 3]"));
    CHECK_THAT(text, Catch::Matchers::ContainsSubstring("inside the node: shared memory, 2 ranks"));
    CHECK_THAT(text, Catch::Matchers::ContainsSubstring("across nodes: tcp, 2 ranks"));
    CHECK(group[rank].rank() == rank);
    CHECK(group[rank].size() == 4);
    const AllreducePlan plan =
        group[rank].explainAllReduce(1 << 20, DType::kFloat32, ReduceOp::kSum);
    CHECK(plan.algorithm == AllreduceAlgorithm::k2d);
    CHECK(group[rank].explainAllReduce(1073741825, DType::kFloat32, ReduceOp::kSum).algorithm ==
          AllreduceAlgorithm::kFlat);
  }
  Group flat(2);
  CHECK_THAT(flat[0].describe(), Catch::Matchers::ContainsSubstring("all ranks: shared memory"));
  CHECK(flat[0].explainAllReduce(1, DType::kFloat32, ReduceOp::kSum).algorithm ==
        AllreduceAlgorithm::kFlat);
}

// Payload of an all-reduce of `bytes`, all ranks together.
Traffic trafficOf(Group& group, size_t bytes) {
  std::vector<Traffic> before;
  for (int rank = 0; rank < group.size(); ++rank) before.push_back(group[rank].traffic());
  runRanks(group.size(), [&](int rank) {
    runOn(group[rank], [&](Collectives& c) { allReduceOnes(c, bytes / 4); });
  });
  Traffic sum;
  for (int rank = 0; rank < group.size(); ++rank) {
    const Traffic after = group[rank].traffic();
    const size_t r = static_cast<size_t>(rank);
    sum.networkBytes += after.networkBytes - before[r].networkBytes;
    sum.sharedMemoryBytes += after.sharedMemoryBytes - before[r].sharedMemoryBytes;
  }
  return sum;
}

TEST_CASE("the bytes on the wire are what the formulas say") {
  constexpr size_t kBytes = 2 << 20;
  const double whole = kBytes;
  struct Example {
    const char* what;
    int ranks;
    std::function<Environment(int, int)> environment;
    double network;
    double shared;
  };
  const std::vector<Example> examples = {
      // 2 nodes x 2: each node sends 2 (N-1)/N S. Inside: reduce-scatter and all-gather, S/2 a
      // rank.
      {"2d", 4, layouts()[2].environment, 2 * whole, 4 * (whole / 2 + whole / 2)},
      // 3 nodes of 2: 3 * 2 * 2/3 S.
      {"2d of three", 6, layouts()[2].environment, 4 * whole, 6 * (whole / 2 + whole / 2)},
      // Flat over a mesh: 2 (P-1)/P S a rank.
      {"mesh", 4, layouts()[1].environment, 4 * 2 * 0.75 * whole, 0},
      {"mesh of two", 2, layouts()[1].environment, 2 * whole, 0},
      {"shared memory", 4, layouts()[0].environment, 0, 4 * 2 * 0.75 * whole},
      {"shared memory of two", 2, layouts()[0].environment, 0, 2 * whole},
  };
  for (const Example& example : examples) {
    INFO(example.what);
    Group group(example.ranks, example.environment);
    const Traffic traffic = trafficOf(group, kBytes);
    const auto network = static_cast<double>(traffic.networkBytes);
    const auto shared = static_cast<double>(traffic.sharedMemoryBytes);
    CHECK(network >= example.network);
    CHECK(network <= example.network * 1.01);
    CHECK(shared >= example.shared * 0.999);
    CHECK(shared <= example.shared * 1.01);
  }
}

TEST_CASE("sends and receives run beside a collective that waits") {
  for (const Layout& layout : layouts()) {
    INFO(layout.name);
    Group group(3, layout.environment);
    runRanks(3, [&](int rank) {
      Communicator& self = group[rank];
      TicketPtr collective;
      if (rank != 2) {
        collective = self.submit(Millis(0),
                                 [](Collectives& c) { allReduceOnes(c); });
      }
      std::vector<float> out(70000, static_cast<float>(rank));
      std::vector<float> in(70000, -1.0f);
      const TicketPtr sent = self.send(view(out), (rank + 1) % 3, 5, Millis(0), nullptr);
      const TicketPtr received =
          self.receive(view(in), rank == 0 ? -1 : (rank + 2) % 3, 5, Millis(0), nullptr);
      expect(received->wait(Deadline::after(Millis(60000))), "not received");
      expect(sent->wait(Deadline::after(Millis(60000))), "not sent");
      if (const auto error = received->error()) throw *error;
      expect(in == std::vector<float>(70000, static_cast<float>((rank + 2) % 3)), "wrong data");
      expect(received->sourceRank() == (rank + 2) % 3 || rank != 0, "wrong source");
      // Only now does rank 2 come.
      if (rank == 2) return runOn(self, [](Collectives& c) { allReduceOnes(c); });
      expect(collective->wait(Deadline::after(Millis(60000))), "no collective");
      if (const auto error = collective->error()) throw *error;
    });
  }
}

}  // namespace
}  // namespace taco
