#include "tests/csrc/link/link_ranks.h"

namespace taco {
namespace {

using namespace taco::testing;
using Catch::Matchers::ContainsSubstring;

using Matrix = std::vector<std::vector<size_t>>;  // [sender][receiver], elements

std::vector<Matrix> matrices(LinkKind kind, int ranks) {
  const size_t p = static_cast<size_t>(ranks);
  std::vector<Matrix> all;
  std::vector<size_t> even = {0, 1, 64, 65};
  if (kind != LinkKind::kMesh && ranks > 1) {
    const size_t share = windowBytes(kind) / (p - 1) / 64 * 64;
    for (const size_t one : {share, 2 * share}) {
      even.insert(even.end(), {one - 1, one, one + 1});
    }
  }
  for (const size_t count : even) all.push_back(Matrix(p, std::vector<size_t>(p, count)));
  // One to all and all to one: scatter and gather.
  for (size_t root = 0; root < p; ++root) {
    Matrix scatter(p, std::vector<size_t>(p, 0));
    Matrix gather = scatter;
    for (size_t r = 0; r < p; ++r) {
      scatter[root][r] = 1000 * r + 7;
      gather[r][root] = 40000 * r + 3;
    }
    all.push_back(scatter);
    all.push_back(gather);
  }
  // A ring of large messages beside nothing.
  Matrix ring(p, std::vector<size_t>(p, 0));
  for (size_t r = 0; r < p; ++r) ring[r][(r + 1) % p] = 600000 + r;
  all.push_back(ring);
  std::mt19937 random(static_cast<uint32_t>(ranks));
  for (int i = 0; i < 12; ++i) {
    Matrix any(p, std::vector<size_t>(p, 0));
    for (auto& row : any) {
      for (size_t& count : row) {
        if (random() % 2 == 0) count = random() % (i % 3 == 0 ? 90000 : 300);
      }
    }
    all.push_back(any);
  }
  return all;
}

TEST_CASE("exchange: every matrix of sizes, zeros among them") {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const LinkKind kind : kAllLinks) {
      const std::vector<Matrix> all = matrices(kind, ranks);
      LinkGroup links(kind, ranks);
      runRanks(ranks, [&](int rank) {
        const size_t self = static_cast<size_t>(rank);
        Operations operations;
        for (size_t i = 0; i < all.size(); ++i) {
          auto content = [&](size_t sender, size_t receiver) {
            return fillBytes(all[i][sender][receiver], i * 100 + sender * 10 + receiver);
          };
          std::vector<Guarded> out;
          std::vector<Guarded> in;
          std::vector<ConstBuffer> sends;
          std::vector<Buffer> receives;
          for (size_t r = 0; r < all[i].size(); ++r) {
            out.emplace_back(DType::kUInt8, content(self, r), (r + i) % 5);
            in.emplace_back(DType::kUInt8, all[i][r][self], (r * 2 + i) % 7);
          }
          for (size_t r = 0; r < all[i].size(); ++r) {
            sends.push_back(out[r].buffer());
            receives.push_back(in[r].buffer());
          }
          if (i % 2 == 1) receives[self] = out[self].buffer();  // its own part in place
          links[rank].exchange(operations.next(OpKind::kAllToAll, DType::kUInt8, 0), sends,
                               receives);
          for (size_t r = 0; r < all[i].size(); ++r) {
            const std::string what = str("exchange ", i, " over ", name(kind), ", from ", r);
            out[r].check(content(self, r), what + ": the input");
            if (r != self || i % 2 == 0) in[r].check(content(r, self), what);
          }
        }
      });
    }
  }
}

TEST_CASE("exchange: a send and a receive of different sizes are a mismatch on all ranks") {
  for (int ranks = 2; ranks <= 4; ++ranks) {
    for (const LinkKind kind : kAllLinks) {
      for (const size_t wrong : {0, 99, 101, 5000}) {
        LinkGroup links(kind, ranks);
        const Outcomes outcomes = tryRanks(ranks, [&](int rank) {
          Operations operations;
          const size_t p = static_cast<size_t>(ranks);
          Bytes out(100);
          std::vector<Bytes> in(p, Bytes(100));
          if (rank == 1) in[0].resize(wrong);  // rank 0 sends 100
          const std::vector<ConstBuffer> sends(p, {out.data(), out.size(), DType::kUInt8});
          std::vector<Buffer> receives;
          for (Bytes& one : in) receives.push_back({one.data(), one.size(), DType::kUInt8});
          try {
            links[rank].exchange(operations.next(OpKind::kAllToAll, DType::kUInt8, 0), sends,
                                 receives);
            // The others may be done before rank 1 has found out; then the next operation tells.
            links[rank].exchange(operations.next(OpKind::kAllToAll, DType::kUInt8, 0), sends,
                                 receives);
          } catch (const Error& error) {
            links[rank].fail(error);
            throw;
          }
        });
        for (int rank = 0; rank < ranks; ++rank) {
          INFO(name(kind) << ", rank " << rank << " of " << ranks << ", expects " << wrong);
          const Error error = outcomes.error(rank);
          INFO(error.what());
          if (rank == 1 || kind != LinkKind::kMesh) CHECK(error.code() == ErrorCode::kMismatch);
          CHECK_THAT(error.what(), ContainsSubstring("100 bytes"));
          CHECK_THAT(error.what(), ContainsSubstring("rank 0"));
          CHECK_THAT(error.what(), ContainsSubstring("rank 1") || ContainsSubstring("rank (1)"));
        }
      }
    }
  }
}

TEST_CASE("exchange: this rank's own part must fit as well") {
  for (int ranks = 1; ranks <= 3; ++ranks) {
    for (const LinkKind kind : kAllLinks) {
      LinkGroup links(kind, ranks);
      const Outcomes outcomes = tryRanks(ranks, [&](int rank) {
        Operations operations;
        const size_t p = static_cast<size_t>(ranks);
        Bytes out(100);
        std::vector<Bytes> in(p, Bytes(100));
        if (rank == 0) in[0].resize(40);
        const std::vector<ConstBuffer> sends(p, {out.data(), out.size(), DType::kUInt8});
        std::vector<Buffer> receives;
        for (Bytes& one : in) receives.push_back({one.data(), one.size(), DType::kUInt8});
        try {
          links[rank].exchange(operations.next(OpKind::kAllToAll, DType::kUInt8, 0), sends,
                               receives);
          links[rank].exchange(operations.next(OpKind::kAllToAll, DType::kUInt8, 0), sends,
                               receives);
        } catch (const Error& error) {
          links[rank].fail(error);
          throw;
        }
      });
      for (int rank = 0; rank < ranks; ++rank) {
        INFO(name(kind) << ", rank " << rank << " of " << ranks);
        const Error error = outcomes.error(rank);
        INFO(error.what());
        CHECK_THAT(error.what(), ContainsSubstring("100 bytes"));
        CHECK_THAT(error.what(), ContainsSubstring("40 bytes"));
      }
    }
  }
}

}  // namespace
}  // namespace taco
