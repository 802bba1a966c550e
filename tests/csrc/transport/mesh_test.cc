#include "csrc/transport/mesh.h"

#include "csrc/base/format.h"
#include "tests/csrc/transport/tcp_ranks.h"

namespace taco {
namespace {

using namespace taco::testing;
using Catch::Matchers::ContainsSubstring;

Call allReduceOf(uint64_t count, uint64_t sequence = 7) {
  Call call;
  call.op = OpKind::kAllReduce;
  call.dtype = DType::kFloat32;
  call.reduceOp = ReduceOp::kSum;
  call.hasReduceOp = 1;
  call.count = count;
  call.sequence = sequence;
  return call;
}

struct Ranks {
  explicit Ranks(int size) {
    for (auto& transport : makeTransports(size)) {
      aborts.push_back(std::make_unique<AbortSignal>());
      meshes.push_back(std::make_unique<Mesh>(std::move(transport), *aborts.back()));
    }
  }
  std::vector<std::unique_ptr<AbortSignal>> aborts;
  std::vector<std::unique_ptr<Mesh>> meshes;
};

std::string errorOf(const std::function<void()>& body, ErrorCode code, int rank) {
  try {
    body();
  } catch (const Error& error) {
    INFO(error.what());
    CHECK(name(error.code()) == std::string(name(code)));
    CHECK(error.rank() == rank);
    return error.what();
  }
  FAIL("no error was thrown");
  return "";
}

// Everybody sends to everybody.
void exchangeAll(Mesh& mesh, size_t bytes, uint32_t step, const Call& call) {
  const int size = mesh.size();
  const int me = mesh.rank();
  std::vector<std::vector<uint8_t>> out(size), in(size);
  std::vector<Transfer> sends(size), receives(size);
  for (int peer = 0; peer < size; ++peer) {
    if (peer == me) continue;
    out[peer] = pattern(bytes, 1000 * me + 10 * peer + step);
    in[peer].assign(bytes, 0);
    mesh.receive(peer, call, step, in[peer].data(), bytes, receives[peer]);
    mesh.send(peer, call, step, out[peer].data(), bytes, sends[peer]);
  }
  const Deadline deadline = Deadline::after(Millis(20000));
  for (int peer = 0; peer < size; ++peer) {
    if (peer == me) continue;
    mesh.wait(receives[peer], call, deadline);
    mesh.wait(sends[peer], call, deadline);
    if (in[peer] != pattern(bytes, 1000 * peer + 10 * me + step)) {
      throw std::runtime_error("wrong bytes");
    }
  }
}

TEST_CASE("everybody sends to everybody, in all sizes") {
  const int size = GENERATE(2, 3, 5);
  Ranks ranks(size);
  runThreads(size, [&](int rank) {
    uint32_t step = 0;
    for (const size_t bytes :
         {0ul, 1ul, 47ul, 48ul, 4095ul, 4096ul, 4097ul, 65535ul, 65536ul, 65537ul, 5ul << 20}) {
      exchangeAll(*ranks.meshes[rank], bytes, step++, allReduceOf(bytes));
    }
    ranks.meshes[rank]->close(Millis(5000));
  });
}

TEST_CASE("frames queued long before they are wanted arrive in order") {
  Ranks ranks(2);
  constexpr int kCount = 500;
  const Call call = allReduceOf(1);
  const Deadline deadline = Deadline::after(Millis(20000));
  runThreads(2, [&](int rank) {
    Mesh& mesh = *ranks.meshes[rank];
    std::vector<uint32_t> data(kCount);
    std::vector<Transfer> transfers(kCount);
    if (rank == 0) {
      for (int i = 0; i < kCount; ++i) {
        data[i] = i;
        mesh.send(1, call, i, &data[i], 4, transfers[i]);
      }
      for (const Transfer& transfer : transfers) mesh.wait(transfer, call, deadline);
      mesh.close(Millis(5000));
    } else {
      std::this_thread::sleep_for(Millis(100));
      for (uint32_t i = 0; i < kCount; ++i) {
        mesh.receive(0, call, i, &data[i], 4, transfers[i]);
        if (i % 3 == 0) mesh.wait(transfers[i], call, deadline);
      }
      mesh.wait(transfers.back(), call, deadline);
      for (uint32_t i = 0; i < kCount; ++i) {
        if (data[i] != i) throw std::runtime_error("out of order");
      }
    }
  });
}

TEST_CASE("ranks in different calls are told what both were doing") {
  Ranks ranks(2);
  std::string said[2];
  runThreads(2, [&](int rank) {
    const Call call = allReduceOf(rank == 0 ? 100 : 200);
    std::vector<float> data(call.count), in(call.count);
    Transfer send, receive;
    Mesh& mesh = *ranks.meshes[rank];
    try {
      mesh.send(1 - rank, call, 0, data.data(), 4 * call.count, send);
      mesh.receive(1 - rank, call, 0, in.data(), 4 * call.count, receive);
      mesh.wait(receive, call, Deadline::after(Millis(10000)));
    } catch (const Error& error) {
      said[rank] = error.what();
    }
  });
  // The mesh stays failed, with the same reason.
  for (int rank = 0; rank < 2; ++rank) {
    Transfer transfer;
    const Call call = allReduceOf(1);
    CHECK_THROWS_WITH(ranks.meshes[rank]->poll(), said[rank]);
    CHECK_THROWS_WITH(ranks.meshes[rank]->wait(transfer, call, Deadline::never()), said[rank]);
    CHECK_THROWS_WITH(ranks.meshes[rank]->send(1 - rank, call, 0, nullptr, 0, transfer),
                      said[rank]);
  }
  for (const std::string& text : said) {
    CHECK_THAT(text, ContainsSubstring("all_reduce(SUM) of 200 float32, operation 7"));
    CHECK_THAT(text, ContainsSubstring("all_reduce(SUM) of 100 float32, operation 7"));
  }
}

TEST_CASE("the same call with other bytes, or at another step, is a mismatch") {
  const bool otherStep = GENERATE(false, true);
  Ranks ranks(2);
  const Call call = allReduceOf(10);
  char data[16] = {};
  Transfer send, receive;
  ranks.meshes[0]->send(1, call, otherStep ? 1 : 0, data, otherStep ? 16 : 8, send);
  ranks.meshes[1]->receive(0, call, 0, data, 16, receive);
  const std::string text =
      errorOf([&] { ranks.meshes[1]->wait(receive, call, Deadline::after(Millis(10000))); },
              ErrorCode::kMismatch, 0);
  CHECK_THAT(text, ContainsSubstring(otherStep ? "as step 1" : "sends 8 bytes"));
  CHECK_THAT(text, ContainsSubstring("expects 16 bytes as step 0"));
}

TEST_CASE("a deadline names the peer, the call and the budget") {
  Ranks ranks(2);
  const Call call = allReduceOf(4);
  std::vector<char> data(64 << 20);
  Transfer transfer;
  const auto began = Clock::now();
  SECTION("receiving") {
    ranks.meshes[0]->receive(1, call, 0, data.data(), 16, transfer);
    const std::string text =
        errorOf([&] { ranks.meshes[0]->wait(transfer, call, Deadline::after(Millis(300))); },
                ErrorCode::kTimeout, 1);
    CHECK_THAT(text, ContainsSubstring("all_reduce(SUM) of 4 float32"));
    CHECK_THAT(text,
               ContainsSubstring(" Timed out after 300 ms on rank 0 waiting for rank 1 to send"));
  }
  SECTION("sending") {
    ranks.meshes[0]->send(1, call, 0, data.data(), data.size(), transfer);
    const std::string text =
        errorOf([&] { ranks.meshes[0]->wait(transfer, call, Deadline::after(Millis(300))); },
                ErrorCode::kTimeout, 1);
    CHECK_THAT(text, ContainsSubstring("to take this rank's data"));
  }
  const auto took = Clock::now() - began;
  CHECK(took >= Millis(295));
  CHECK(took < Millis(20000));
}

TEST_CASE("an abort ends a wait at once") {
  Ranks ranks(2);
  const Call call = allReduceOf(4);
  char data[16];
  Transfer transfer;
  ranks.meshes[0]->receive(1, call, 0, data, 16, transfer);
  Clock::time_point raised;
  std::thread other([&] {
    std::this_thread::sleep_for(Millis(150));
    raised = Clock::now();
    ranks.aborts[0]->raise(Error(ErrorCode::kAborted, "told to stop"));
  });
  const std::string text = errorOf(
      [&] { ranks.meshes[0]->wait(transfer, call, Deadline::never()); }, ErrorCode::kAborted, -1);
  const auto seen = Clock::now();
  other.join();
  CHECK(text == "told to stop");
  CHECK(seen - raised < Millis(20000));
}

TEST_CASE("a rank that fails tells the others why, wherever they are") {
  const int size = 4;
  Ranks ranks(size);
  const Call call = allReduceOf(4);
  std::string said[size];
  runThreads(size, [&](int rank) {
    Mesh& mesh = *ranks.meshes[rank];
    // Connected before (rank 1), waiting in vain and never connected (ranks 0 and 3).
    char data[16] = {};
    Transfer transfer;
    if (rank == 2) {
      mesh.receive(1, call, 0, data, 16, transfer);
      mesh.wait(transfer, call, Deadline::after(Millis(10000)));
      std::this_thread::sleep_for(Millis(400));
      mesh.fail(Error(ErrorCode::kAborted, "the disk is full"));
      return;
    }
    try {
      Transfer receive;
      if (rank == 1) mesh.send(2, call, 0, data, 16, transfer);
      mesh.receive(2, call, 0, data, 16, receive);
      mesh.wait(receive, call, Deadline::after(Millis(10000)));
    } catch (const Error& error) {
      said[rank] = str(error.rank(), " ", name(error.code()), " ", error.what());
    }
  });
  for (const int rank : {0, 1, 3}) {
    INFO("rank " << rank);
    CHECK_THAT(said[rank], ContainsSubstring("2 peer failed rank 2 failed: the disk is full"));
  }
}

TEST_CASE("what was sent before a goodbye arrives long after it") {
  const size_t bytes = GENERATE(0ul, 16ul, 100000ul);
  Ranks ranks(2);
  const Call call = allReduceOf(bytes);
  const auto sent = pattern(bytes, 3);
  {
    Transfer transfer;
    ranks.meshes[0]->send(1, call, 0, sent.data(), bytes, transfer);
    ranks.meshes[0]->wait(transfer, call, Deadline::after(Millis(5000)));
    ranks.meshes[0]->close(Millis(5000));
    ranks.meshes[0].reset();  // before the other side has ever accepted
  }
  std::vector<uint8_t> got(bytes);
  Transfer first, second;
  ranks.meshes[1]->receive(0, call, 0, got.data(), bytes, first);
  ranks.meshes[1]->wait(first, call, Deadline::after(Millis(5000)));
  CHECK(got == sent);
  // And then it has left.
  ranks.meshes[1]->receive(0, call, 1, got.data(), bytes, second);
  const std::string text =
      errorOf([&] { ranks.meshes[1]->wait(second, call, Deadline::after(Millis(5000))); },
              ErrorCode::kPeerFailed, 0);
  CHECK_THAT(text, ContainsSubstring("rank 0 has closed its side of the group"));
  CHECK_THAT(text, ContainsSubstring("all_reduce"));
}

TEST_CASE("all ranks may close at the same moment") {
  const int size = 4;
  for (int i = 0; i < 20; ++i) {
    Ranks ranks(size);
    runThreads(size, [&](int rank) {
      exchangeAll(*ranks.meshes[rank], 1000, 0, allReduceOf(1));
      ranks.meshes[rank]->close(Millis(5000));
    });
  }
}

TEST_CASE("a rank that is killed is named by all others, within a second") {
  enum Moment { kIdle, kMidFrame, kNeverConnected };
  const Moment moment = GENERATE(kIdle, kMidFrame, kNeverConnected);
  INFO("moment " << moment);
  const int size = 3;
  ForkedRanks ranks(size, [&](int rank, std::unique_ptr<TcpTransport> transport, Meeting& meeting) {
    AbortSignal abort;
    Mesh mesh(std::move(transport), abort);
    const Call call = allReduceOf(1);
    if (moment != kNeverConnected) exchangeAll(mesh, 100, 0, call);
    std::vector<char> large(64 << 20);
    Transfer transfer;
    if (rank == 2 && moment == kMidFrame) {
      Transfer other;
      mesh.send(0, call, 1, large.data(), large.size(), transfer);
      mesh.send(1, call, 1, large.data(), large.size(), other);
    }
    meeting.barrier(1, size + 1);
    if (rank == 2) ::pause();
    const auto began = Clock::now();
    try {
      mesh.receive(2, call, 1, large.data(), large.size(), transfer);
      mesh.wait(transfer, call, Deadline::after(Millis(20000)));
    } catch (const Error& error) {
      const bool quick = Clock::now() - began < Millis(1500);
      return str(error.rank(), quick ? " quick " : " slow ", error.what());
    }
    return std::string("no error");
  });
  ranks.meeting().barrier(1, size + 1);
  std::this_thread::sleep_for(Millis(50));
  ranks.kill(2, SIGKILL);
  for (const int rank : {0, 1}) {
    const std::string outcome = ranks.outcome(rank);
    CHECK_THAT(outcome, ContainsSubstring("2 quick rank 2 "));
    CHECK_THAT(outcome, ContainsSubstring("is gone") || ContainsSubstring("said by"));
  }
}

TEST_CASE("the death of a rank is news to those who wait for somebody else") {
  // 0 waits for 1, 1 waits for 2, 2 dies.
  ForkedRanks ranks(3, [&](int rank, std::unique_ptr<TcpTransport> transport, Meeting& meeting) {
    AbortSignal abort;
    Mesh mesh(std::move(transport), abort);
    const Call call = allReduceOf(1);
    meeting.barrier(1, 4);
    if (rank == 2) ::pause();
    char data[4];
    Transfer transfer;
    try {
      mesh.receive(rank + 1, call, 0, data, 4, transfer);
      mesh.wait(transfer, call, Deadline::after(Millis(20000)));
    } catch (const Error& error) {
      return str(error.rank(), " ", error.what());
    }
    return std::string("no error");
  });
  ranks.meeting().barrier(1, 4);
  std::this_thread::sleep_for(Millis(300));
  ranks.kill(2, SIGKILL);
  CHECK_THAT(ranks.outcome(1), ContainsSubstring("2 rank 2 is gone"));
  CHECK_THAT(ranks.outcome(0), ContainsSubstring("2 rank 2 is gone"));
  CHECK_THAT(ranks.outcome(0), ContainsSubstring("(said by rank 1)"));
}

}  // namespace
}  // namespace taco
