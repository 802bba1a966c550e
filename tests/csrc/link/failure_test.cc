// What a link does when the ranks do different things, when one does not come, fails, or leaves.
#include <atomic>
#include <thread>

#include "tests/csrc/link/link_ranks.h"

namespace taco {
namespace {

using namespace taco::testing;
using Catch::Matchers::ContainsSubstring;

// Calls a verb on small data, as `op` says; throws what the link throws.
void call(Link& link, const OpContext& op) {
  const size_t ranks = static_cast<size_t>(link.size());
  const size_t count = op.call.count;
  Bytes data(count * elementBytes(op.call.dtype) * ranks);
  const Buffer whole{data.data(), count * ranks, op.call.dtype};
  std::vector<Buffer> parts;
  for (size_t r = 0; r < ranks; ++r) parts.push_back(whole.slice(r * count, count));
  const std::vector<ConstBuffer> constParts(parts.begin(), parts.end());
  const Bytes in(count * elementBytes(op.call.dtype));
  const ConstBuffer mine(in.data(), count, op.call.dtype);
  const auto reduction = [&] { return onlyLevel(op.call.reduceOp, op.call.dtype, link.size()); };
  switch (op.call.op) {
    case OpKind::kAllReduce:
      return link.allReduce(op, parts[0], reduction());
    case OpKind::kReduceScatter:
      return link.reduceScatter(op, constParts, parts[static_cast<size_t>(link.rank())],
                                reduction());
    case OpKind::kAllGather:
      return link.allGather(op, mine, parts);
    case OpKind::kBroadcast:
      return link.broadcast(op, parts[0], op.call.root);
    case OpKind::kAllToAll: {
      std::vector<ConstBuffer> sends(ranks, mine);
      return link.exchange(op, sends, parts);
    }
    default:
      throw std::logic_error("not a verb of links");
  }
}

OpContext operation(OpKind kind, size_t count, DType dtype = DType::kFloat32, int root = -1,
                    ReduceOp reduceOp = ReduceOp::kSum, Millis timeout = Millis(60000)) {
  Operations operations(timeout);
  if (kind == OpKind::kAllReduce || kind == OpKind::kReduceScatter) {
    return operations.next(kind, dtype, count, reduceOp, root);
  }
  return operations.next(kind, dtype, count, root);
}

constexpr OpKind kVerbs[] = {OpKind::kAllReduce, OpKind::kReduceScatter, OpKind::kAllGather,
                             OpKind::kBroadcast, OpKind::kAllToAll};

TEST_CASE("ranks that call different things are told so, all of them, what and by whom") {
  struct Pair {
    OpContext most;  // what the others call
    OpContext odd;   // what one calls
  };
  const std::vector<Pair> pairs = {
      {operation(OpKind::kAllReduce, 1000), operation(OpKind::kAllReduce, 1001)},
      {operation(OpKind::kAllReduce, 100000), operation(OpKind::kAllReduce, 10)},
      {operation(OpKind::kAllReduce, 10), operation(OpKind::kAllReduce, 100000)},
      {operation(OpKind::kAllReduce, 1000), operation(OpKind::kAllReduce, 1000, DType::kInt32)},
      {operation(OpKind::kAllReduce, 1000),
       operation(OpKind::kAllReduce, 1000, DType::kFloat32, -1, ReduceOp::kMax)},
      {operation(OpKind::kBroadcast, 1000, DType::kFloat32, 0),
       operation(OpKind::kBroadcast, 1000, DType::kFloat32, 1)},
      {operation(OpKind::kBroadcast, 500000, DType::kFloat32, 0),
       operation(OpKind::kAllReduce, 500000)},
      {operation(OpKind::kAllGather, 1000), operation(OpKind::kReduceScatter, 1000)},
      {operation(OpKind::kReduceScatter, 70000), operation(OpKind::kAllGather, 3)},
      {operation(OpKind::kAllToAll, 1000), operation(OpKind::kAllGather, 1000)},
  };
  for (const LinkKind kind : kAllLinks) {
    for (int ranks = 2; ranks <= 4; ++ranks) {
      for (size_t i = 0; i < pairs.size(); ++i) {
        const int odd = static_cast<int>(i) % ranks;
        LinkGroup links(kind, ranks);
        const Outcomes outcomes = tryRanks(ranks, [&](int rank) {
          const OpContext& op = rank == odd ? pairs[i].odd : pairs[i].most;
          call(links[rank], op);
          // In a mesh whoever needs nothing of the odd one is through, and learns it here.
          OpContext next = operation(OpKind::kAllReduce, 5);
          next.call.sequence = 2;
          call(links[rank], next);
        });
        for (int rank = 0; rank < ranks; ++rank) {
          INFO(name(kind) << ", pair " << i << ", rank " << rank << " of " << ranks);
          const Error error = outcomes.error(rank);
          INFO(error.what());
          // A rank that is told by another may see that as the peer's failure.
          CHECK((error.code() == ErrorCode::kMismatch || error.code() == ErrorCode::kPeerFailed));
          if (kind != LinkKind::kMesh) {
            CHECK(error.code() == ErrorCode::kMismatch);
            CHECK_THAT(error.what(), ContainsSubstring(pairs[i].odd.call.describe()));
            CHECK_THAT(error.what(), ContainsSubstring(pairs[i].most.call.describe()));
            CHECK_THAT(error.what(), ContainsSubstring(str("rank ", odd)));
          } else if (ranks == 2) {
            CHECK_THAT(error.what(), ContainsSubstring(pairs[i].odd.call.describe()) ||
                                         ContainsSubstring(pairs[i].most.call.describe()));
          }
        }
      }
    }
  }
}

TEST_CASE("an operation that one rank does not call times out on the others, and names it") {
  for (const LinkKind kind : kAllLinks) {
    for (int ranks = 2; ranks <= 4; ++ranks) {
      for (const OpKind verb : kVerbs) {
        const int missing = ranks - 1;
        LinkGroup links(kind, ranks);
        std::atomic<int> ended{0};
        const auto began = Clock::now();
        const Outcomes outcomes = tryRanks(ranks, [&](int rank) {
          if (rank == missing) {
            while (ended.load() < ranks - 1) std::this_thread::yield();
            return;
          }
          try {
            call(links[rank],
                 operation(verb, 100, DType::kFloat32, verb == OpKind::kBroadcast ? missing : -1,
                           ReduceOp::kSum, Millis(150)));
          } catch (...) {
            ++ended;
            throw;
          }
          ++ended;
        });
        CHECK(Clock::now() - began < std::chrono::seconds(30));
        for (int rank = 0; rank < ranks - 1; ++rank) {
          INFO(name(kind) << ", " << taco::name(verb) << ", rank " << rank << " of " << ranks);
          const Error error = outcomes.error(rank);
          INFO(error.what());
          // The first one tells the others, which may hear it before their own time is over.
          CHECK((error.code() == ErrorCode::kTimeout || error.code() == ErrorCode::kPeerFailed));
          CHECK_THAT(error.what(), ContainsSubstring("Timed out after 150 ms"));
          // Down a tree, a rank knows only the one above it.
          if (kind == LinkKind::kMesh && verb == OpKind::kBroadcast) {
            CHECK_THAT(error.what(), ContainsSubstring("waiting for rank "));
          } else {
            CHECK_THAT(error.what(), ContainsSubstring(str("rank ", missing)) ||
                                         ContainsSubstring(str("rank(s) ", missing)));
          }
          CHECK_THAT(error.what(), ContainsSubstring(taco::name(verb)));
        }
      }
    }
  }
}

TEST_CASE(
    "who fails tells the others why, also those that wait already, and the link is finished") {
  for (const LinkKind kind : kAllLinks) {
    for (int ranks = 2; ranks <= 4; ++ranks) {
      for (const OpKind verb : kVerbs) {
        LinkGroup links(kind, ranks);
        // In a mesh who tells must be connected: one operation before.
        const Outcomes outcomes = tryRanks(ranks, [&](int rank) {
          call(links[rank], operation(OpKind::kAllReduce, 4));
          if (rank == 0) {
            const Error why(ErrorCode::kSystem, "the disk is full of bees");
            links[0].fail(why);
            throw why;
          }
          OpContext op =
              operation(verb, 50000, DType::kFloat32, verb == OpKind::kBroadcast ? 0 : -1);
          op.call.sequence = 2;
          call(links[rank], op);
        });
        for (int rank = 0; rank < ranks; ++rank) {
          INFO(name(kind) << ", " << taco::name(verb) << ", rank " << rank << " of " << ranks);
          const Error error = outcomes.error(rank);
          CHECK_THAT(error.what(), ContainsSubstring("the disk is full of bees"));
          if (rank == 0) continue;
          INFO(error.what());
          CHECK(error.code() == ErrorCode::kPeerFailed);
          CHECK_THAT(error.what(), ContainsSubstring("rank 0"));
        }
        for (int rank = 0; rank < ranks; ++rank) {
          OpContext op = operation(verb, 3, DType::kFloat32, verb == OpKind::kBroadcast ? 0 : -1);
          const Error again = errorOf([&] { call(links[rank], op); });
          CHECK_THAT(again.what(), ContainsSubstring("the disk is full of bees"));
        }
      }
    }
  }
}

TEST_CASE("the abort signal ends a wait, and reaches the other ranks") {
  for (const LinkKind kind : kAllLinks) {
    LinkGroup links(kind, 3);
    std::atomic<int> waiting{0};
    const Outcomes outcomes = tryRanks(3, [&](int rank) {
      call(links[rank], operation(OpKind::kAllReduce, 4));
      OpContext op = operation(OpKind::kAllReduce, 50000);
      op.call.sequence = 2;
      if (rank == 2) {
        while (waiting.load() < 2) std::this_thread::yield();
        links.abort(1).raise(Error(ErrorCode::kAborted, "the user has had enough"));
        // Rank 2 calls nothing: only rank 1's failure can end rank 0.
        return;
      }
      ++waiting;
      call(links[rank], op);
    });
    for (int rank = 0; rank < 2; ++rank) {
      INFO(name(kind) << ", rank " << rank);
      CHECK_THAT(outcomes.what(rank), ContainsSubstring("the user has had enough"));
    }
    CHECK(outcomes.error(1).code() == ErrorCode::kAborted);
    CHECK(outcomes.error(0).code() == ErrorCode::kPeerFailed);
    CHECK(outcomes.succeeded(2));
  }
}

TEST_CASE("who has done its part may leave, who has not is missed at once") {
  for (const LinkKind kind : {LinkKind::kShmSpin, LinkKind::kShmYield, LinkKind::kShmSmall}) {
    for (int round = 0; round < 20; ++round) {
      LinkGroup links(kind, 3);
      // Many steps; whoever is through leaves while the others still read.
      runRanks(3, [&](int rank) {
        for (const OpKind verb : kVerbs) {
          OpContext op =
              operation(verb, 30000, DType::kFloat32, verb == OpKind::kBroadcast ? 0 : -1);
          op.call.sequence = 1 + static_cast<uint64_t>(verb);
          call(links[rank], op);
        }
        OpContext last = operation(OpKind::kBroadcast, 90000, DType::kFloat32, 1);
        last.call.sequence = 99;
        call(links[rank], last);
        links.leave(rank);
      });
    }
    LinkGroup links(kind, 3);
    const Outcomes outcomes = tryRanks(3, [&](int rank) {
      if (rank == 1) return links.leave(1);
      call(links[rank], operation(OpKind::kAllReduce, 100));
    });
    for (const int rank : {0, 2}) {
      const Error error = outcomes.error(rank);
      INFO(error.what());
      CHECK(error.code() == ErrorCode::kPeerFailed);
      CHECK(error.rank() != -1);
      CHECK_THAT(error.what(), ContainsSubstring("rank 1 has left the group"));
    }
  }
}

}  // namespace
}  // namespace taco
