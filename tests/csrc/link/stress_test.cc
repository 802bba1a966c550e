// A long random sequence of operations on one link: what steps and slots are for. Ranks run ahead
// of each other by random pauses; nothing but the protocol keeps them apart.
#include <thread>

#include "tests/csrc/link/link_ranks.h"

namespace taco {
namespace {

using namespace taco::testing;

enum class Verb { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kExchange, kCount };

struct Operation {
  Verb verb;
  size_t count;  // elements of int32
  int root;
  uint64_t seed;
};

std::vector<Operation> randomOperations(LinkKind kind, int ranks, int howMany) {
  std::mt19937 random(static_cast<uint32_t>(ranks) * 100 + static_cast<uint32_t>(kind));
  std::vector<Operation> operations;
  for (int i = 0; i < howMany; ++i) {
    size_t count = random() % 64;
    if (random() % 4 == 0) count = random() % 5000;
    if (random() % 50 == 0) count = random() % 60000;
    operations.push_back({static_cast<Verb>(random() % static_cast<uint32_t>(Verb::kCount)), count,
                          static_cast<int>(random() % static_cast<uint32_t>(ranks)), random()});
  }
  return operations;
}

uint32_t value(uint64_t seed, size_t rank, size_t i) {
  return static_cast<uint32_t>(mixHash(seed + rank * 1000003, i));
}

std::vector<uint32_t> values(const Operation& op, size_t rank, size_t begin, size_t count) {
  std::vector<uint32_t> data(count);
  for (size_t i = 0; i < count; ++i) data[i] = value(op.seed, rank, begin + i);
  return data;
}

uint32_t total(const Operation& op, size_t ranks, size_t i) {
  uint32_t sum = 0;
  for (size_t rank = 0; rank < ranks; ++rank) sum += value(op.seed, rank, i);
  return sum;
}

Buffer view(std::vector<uint32_t>& data) { return {data.data(), data.size(), DType::kInt32}; }

void run(Link& link, Operations& operations, const Operation& op) {
  const size_t ranks = static_cast<size_t>(link.size());
  const size_t self = static_cast<size_t>(link.rank());
  const Reduction reduction = onlyLevel(ReduceOp::kSum, DType::kInt32, link.size());
  bool right = true;
  switch (op.verb) {
    case Verb::kAllReduce: {
      std::vector<uint32_t> data = values(op, self, 0, op.count);
      link.allReduce(operations.next(OpKind::kAllReduce, DType::kInt32, op.count, ReduceOp::kSum),
                     view(data), reduction);
      for (size_t i = 0; i < data.size(); ++i) right &= data[i] == total(op, ranks, i);
      break;
    }
    case Verb::kReduceScatter: {  // uneven: rank r gets count / (r + 1)
      std::vector<std::vector<uint32_t>> parts;
      std::vector<ConstBuffer> views;
      for (size_t r = 0; r < ranks; ++r) parts.push_back(values(op, self, 0, op.count / (r + 1)));
      for (auto& part : parts) views.push_back(view(part));
      std::vector<uint32_t> out(parts[self].size());
      link.reduceScatter(
          operations.next(OpKind::kReduceScatter, DType::kInt32, op.count, ReduceOp::kSum), views,
          view(out), reduction);
      for (size_t i = 0; i < out.size(); ++i) right &= out[i] == total(op, ranks, i);
      break;
    }
    case Verb::kAllGather: {
      std::vector<std::vector<uint32_t>> outs;
      std::vector<Buffer> views;
      for (size_t r = 0; r < ranks; ++r) outs.emplace_back(op.count / (ranks - r));
      for (auto& out : outs) views.push_back(view(out));
      std::vector<uint32_t> in = values(op, self, 0, outs[self].size());
      link.allGather(operations.next(OpKind::kAllGather, DType::kInt32, op.count), view(in), views);
      for (size_t r = 0; r < ranks; ++r) right &= outs[r] == values(op, r, 0, outs[r].size());
      break;
    }
    case Verb::kBroadcast: {
      const size_t root = static_cast<size_t>(op.root);
      const std::vector<uint32_t> expected = values(op, root, 0, op.count);
      std::vector<uint32_t> data = self == root ? expected : std::vector<uint32_t>(op.count);
      link.broadcast(operations.next(OpKind::kBroadcast, DType::kInt32, op.count, op.root),
                     view(data), op.root);
      right = data == expected;
      break;
    }
    case Verb::kExchange: {
      auto size = [&](size_t from, size_t to) { return op.count * ((from + 2 * to) % 3) / 2; };
      std::vector<std::vector<uint32_t>> out;
      std::vector<std::vector<uint32_t>> in;
      for (size_t r = 0; r < ranks; ++r) {
        out.push_back(values(op, self, r, size(self, r)));
        in.emplace_back(size(r, self));
      }
      std::vector<ConstBuffer> sends;
      std::vector<Buffer> receives;
      for (size_t r = 0; r < ranks; ++r) {
        sends.push_back(view(out[r]));
        receives.push_back(view(in[r]));
      }
      link.exchange(operations.next(OpKind::kAllToAll, DType::kInt32, 0), sends, receives);
      for (size_t r = 0; r < ranks; ++r) right &= in[r] == values(op, r, self, in[r].size());
      break;
    }
    case Verb::kCount:
      break;
  }
  expect(right,
         str("wrong result of verb ", static_cast<int>(op.verb), " with ", op.count, " elements"));
}

void stress(LinkKind kind, int ranks, bool pauses) {
  const std::vector<Operation> sequence = randomOperations(kind, ranks, 2000);
  LinkGroup links(kind, ranks);
  runRanks(ranks, [&](int rank) {
    Operations operations;
    std::mt19937 random(static_cast<uint32_t>(rank));
    for (size_t i = 0; i < sequence.size(); ++i) {
      // Not to synchronise but to keep the ranks from doing it.
      if (pauses && random() % 40 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
      }
      try {
        run(links[rank], operations, sequence[i]);
      } catch (const std::exception& error) {
        const Error why(ErrorCode::kSystem, str("operation ", i, ": ", error.what()));
        links[rank].fail(why);
        throw why;
      }
    }
  });
}

TEST_CASE("2000 mixed operations, as fast as they go") {
  for (const LinkKind kind : kAllLinks) {
    for (const int ranks : {2, 3, 5}) stress(kind, ranks, false);
  }
}

TEST_CASE("2000 mixed operations, with ranks that run ahead") {
  for (const LinkKind kind : kAllLinks) {
    for (const int ranks : {2, 4}) stress(kind, ranks, true);
  }
}

}  // namespace
}  // namespace taco
