// How a group ends, in order and not.
#include <atomic>

#include "tests/csrc/communicator/group.h"
#include "tests/csrc/forked_ranks.h"

namespace taco {
namespace {

using namespace taco::testing;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a bad rank, size or root is an error that leaves everything usable") {
  CommunicatorConfig config;
  config.rank = 2;
  config.size = 2;
  config.store = std::make_shared<MemoryStore>();
  CHECK(errorOf([&] { Communicator communicator(config); }).code() == ErrorCode::kInvalidArgument);
  config.size = 0;
  config.rank = 0;
  CHECK(errorOf([&] { Communicator communicator(config); }).code() == ErrorCode::kInvalidArgument);

  for (const Layout& layout : layouts()) {
    Group group(2, layout.environment);
    runRanks(2, [&](int rank) {
      Communicator& self = group[rank];
      std::vector<float> data(4);
      const std::vector<Body> bad = {
          [&](Collectives& c) { c.broadcast(view(data), 2); },
          [&](Collectives& c) { c.broadcast(view(data), -1); },
          [&](Collectives& c) { c.reduce(view(data), view(data), {}, 7); },
          [&](Collectives& c) { c.gather(view(data), {}, 2); },
          [&](Collectives& c) { c.scatter({}, view(data), 2); },
          [&](Collectives& c) { c.allReduce(view(data), {ReduceOp::kBxor}); },
          [&](Collectives& c) { c.reduce(view(data), view(data), {ReduceOp::kBand}, 0); },
          [&](Collectives& c) {
            std::vector<float> small(3);
            c.allGather(view(small), std::vector<Buffer>{view(data), view(data)});
          },
          [&](Collectives& c) {
            std::vector<float> small(3);
            c.reduceScatter(std::vector<ConstBuffer>{view(data), view(data)}, view(small), {});
          },
          [](Collectives&) { throw Error(ErrorCode::kInvalidArgument, "not contiguous"); },
      };
      for (const Body& body : bad) {
        try {
          runOn(self, body);
          throw std::runtime_error("no error");
        } catch (const Error& error) {
          expect(error.isCallersFault(), str("poisoned: ", error.what()));
        }
        runOn(self, [](Collectives& c) { allReduceOnes(c); });
      }
      for (const int peer : {-2, 2}) {
        bool refused = false;
        try {
          self.receive(view(data), peer, 0, Millis(0), nullptr);
        } catch (const Error& error) {
          refused = error.code() == ErrorCode::kInvalidArgument;
        }
        expect(refused, "a bad source was accepted");
      }
      expect(!self.failure(), "the group failed");
    });
  }
}

TEST_CASE("any other error of a body ends the group on all ranks, which say why") {
  for (const Layout& layout : layouts()) {
    for (int ranks = 2; ranks <= 4; ++ranks) {
      for (const Mode mode : {Mode::kSync, Mode::kAsync}) {
        Group group(ranks, layout.environment);
        const int failing = ranks - 1;
        const Outcomes outcomes = tryRanks(ranks, [&](int rank) {
          runOn(group[rank], [](Collectives& c) { allReduceOnes(c); });
          runOn(
              group[rank],
              [&](Collectives& c) {
                if (rank == failing) throw std::runtime_error("the GPU caught fire");
                allReduceOnes(c, 30000);
              },
              Millis(0), mode);
        });
        for (int rank = 0; rank < ranks; ++rank) {
          INFO(layout.name << ", rank " << rank << " of " << ranks);
          const Error error = outcomes.error(rank);
          INFO(error.what());
          CHECK_THAT(error.what(), ContainsSubstring("the GPU caught fire"));
          CHECK(error.code() == (rank == failing ? ErrorCode::kSystem : ErrorCode::kPeerFailed));
          if (rank != failing) CHECK_THAT(error.what(), ContainsSubstring(str("rank ", failing)));
          REQUIRE(group[rank].failure());
          CHECK_THAT(group[rank].failure()->what(), ContainsSubstring("the GPU caught fire"));
          // And so does everything that comes later, point to point as well.
          const Error later =
              errorOf([&] { runOn(group[rank], [](Collectives& c) { allReduceOnes(c); }); });
          CHECK_THAT(later.what(), ContainsSubstring("the GPU caught fire"));
          std::vector<float> data(4);
          const TicketPtr receive = group[rank].receive(view(data), 0, 1, Millis(2000), nullptr);
          REQUIRE(receive->wait(Deadline::after(Millis(60000))));
          CHECK(receive->error());
        }
      }
    }
  }
}

TEST_CASE("an operation has its own timeout, or the group's, and the error names who is missing") {
  for (const Layout& layout : layouts()) {
    for (const bool own : {true, false}) {
      Group group(3, layout.environment);
      std::atomic<int> ended{0};
      const Outcomes outcomes = tryRanks(3, [&](int rank) {
        runOn(group[rank], [](Collectives& c) { allReduceOnes(c); });
        if (rank == 1) {
          while (ended.load() < 2) std::this_thread::yield();
          return;
        }
        if (!own) {
          group[rank].setTimeout(Millis(500));
          expect(group[rank].timeout() == Millis(500), "another timeout");
        }
        try {
          runOn(
              group[rank], [](Collectives& c) { c.barrier(); }, Millis(own ? 500 : 0));
        } catch (...) {
          ++ended;
          throw;
        }
        ++ended;
      });
      for (const int rank : {0, 2}) {
        INFO(layout.name << ", rank " << rank);
        const Error error = outcomes.error(rank);
        INFO(error.what());
        CHECK((error.code() == ErrorCode::kTimeout || error.code() == ErrorCode::kPeerFailed));
        CHECK_THAT(error.what(),
                   ContainsSubstring("barrier") && ContainsSubstring("Timed out after 500 ms"));
        CHECK_THAT(error.what(), ContainsSubstring("rank 1") || ContainsSubstring("rank(s) 1"));
      }
    }
  }
}

TEST_CASE("ranks that call different operations are told on all ranks") {
  for (const Layout& layout : layouts()) {
    for (int ranks = 2; ranks <= 4; ++ranks) {
      Group group(ranks, layout.environment);
      const Outcomes outcomes = tryRanks(ranks, [&](int rank) {
        runOn(group[rank], [](Collectives& c) { allReduceOnes(c); });
        runOn(group[rank], [&](Collectives& c) {
          std::vector<float> data(rank == 0 ? 4000 : 5000, 1.0f);
          c.allReduce(view(data), {});
        });
        // Whoever was through before the news came hears it here.
        runOn(group[rank], [](Collectives& c) { c.barrier(); });
      });
      for (int rank = 0; rank < ranks; ++rank) {
        INFO(layout.name << ", rank " << rank << " of " << ranks);
        const Error error = outcomes.error(rank);
        INFO(error.what());
        CHECK((error.code() == ErrorCode::kMismatch || error.code() == ErrorCode::kPeerFailed));
        CHECK_THAT(error.what(),
                   ContainsSubstring("4000 float32") && ContainsSubstring("5000 float32"));
      }
    }
  }
}

TEST_CASE("shutting down in any order loses nothing and waits for nobody for long") {
  for (const Layout& layout : layouts()) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      for (const bool zeroFirst : {true, false}) {
        Group group(ranks, layout.environment);
        std::atomic<bool> firstGone{false};
        runRanks(ranks, [&](int rank) {
          std::vector<TicketPtr> tickets;
          for (int i = 0; i < 20; ++i) {
            tickets.push_back(group[rank].submit(Millis(0),
                                                 [](Collectives& c) { allReduceOnes(c, 3000); }));
          }
          std::vector<float> in(10);
          std::vector<float> out(10, 3.0f);
          if (ranks > 1) {  // a message that is received after its sender has gone
            if (rank == 0) tickets.push_back(group[0].send(view(out), 1, 1, Millis(0), nullptr));
          }
          const bool isFirst = (rank == 0) == zeroFirst || ranks == 1;
          if (isFirst) {
            group[rank].shutdown();
            if (rank == 0 || !zeroFirst) firstGone = true;
          } else {
            while (!firstGone.load()) std::this_thread::yield();
          }
          if (ranks > 1 && rank == 1 && !isFirst) {
            const TicketPtr received = group[1].receive(view(in), 0, 1, Millis(0), nullptr);
            expect(received->wait(Deadline::after(Millis(60000))), "not received");
            if (const auto error = received->error()) throw *error;
            expect(in == out, "received something else");
          }
          group[rank].shutdown();
          for (const TicketPtr& ticket : tickets) {
            expect(ticket->isDone(), "pending after shutdown");
            if (const auto error = ticket->error()) throw *error;
          }
          bool refused = false;
          const auto why = group[rank].run(Millis(0), [](Collectives&) {});
          refused = why && why->code() == ErrorCode::kAborted;
          expect(refused, "accepted after shutdown");
        });
      }
    }
  }
}

TEST_CASE("a rank that waits for one that has left is told at once") {
  for (const Layout& layout : layouts()) {
    Group group(3, layout.environment);
    const auto began = Clock::now();
    const Outcomes outcomes = tryRanks(3, [&](int rank) {
      runOn(group[rank], [](Collectives& c) { allReduceOnes(c); });
      if (rank == 0) return group[0].shutdown();  // and stays there
      runOn(group[rank], [](Collectives& c) { allReduceOnes(c); });
    });
    CHECK(outcomes.succeeded(0));
    CHECK(Clock::now() - began < std::chrono::seconds(30));
    for (const int rank : {1, 2}) {
      INFO(layout.name << ", rank " << rank);
      const Error error = outcomes.error(rank);
      INFO(error.what());
      CHECK(error.code() == ErrorCode::kPeerFailed);
      CHECK_THAT(error.what(), ContainsSubstring("rank 0 has left the group") ||
                                   ContainsSubstring("rank 0 has closed its side of the group"));
    }
  }
}

TEST_CASE("abort ends what is pending here, at once, and what waits elsewhere") {
  for (const Layout& layout : layouts()) {
    Group group(3, layout.environment);
    std::atomic<int> waiting{0};
    const auto began = Clock::now();
    const Outcomes outcomes = tryRanks(3, [&](int rank) {
      runOn(group[rank], [](Collectives& c) { allReduceOnes(c); });
      if (rank == 2) {
        while (waiting.load() < 2) std::this_thread::yield();
        group[2].abort("enough of this");
        runOn(group[2], [](Collectives& c) { allReduceOnes(c); });
      }
      std::vector<float> data(10);
      const TicketPtr receive = group[rank].receive(view(data), 2, 9, Millis(0), nullptr);
      const TicketPtr queued = group[rank].submit(Millis(0), [&](Collectives& c) {
        ++waiting;
        allReduceOnes(c, 20000);
      });
      const TicketPtr behind =
          group[rank].submit(Millis(0), [](Collectives& c) { allReduceOnes(c); });
      for (const TicketPtr& ticket : {receive, queued, behind}) {
        expect(ticket->wait(Deadline::after(Millis(50000))), "pending after abort");
        expect(ticket->error().has_value(), "succeeded after abort");
      }
      throw *queued->error();
    });
    CHECK(Clock::now() - began < std::chrono::seconds(30));
    for (int rank = 0; rank < 3; ++rank) {
      INFO(layout.name << ", rank " << rank);
      CHECK_THAT(outcomes.what(rank), ContainsSubstring("enough of this"));
    }
  }
}

TEST_CASE("abort from another thread ends a synchronous operation that waits") {
  for (const Layout& layout : layouts()) {
    Group group(2, layout.environment);
    std::atomic<bool> inside{false};
    const Outcomes outcomes = tryRanks(3, [&](int thread) {
      if (thread == 1) return;  // rank 1 never comes
      if (thread == 0) {
        return runOn(group[0], [&](Collectives& c) {
          inside = true;
          c.barrier();
        });
      }
      while (!inside.load()) std::this_thread::yield();
      group[0].abort("stop that");
      group[0].abort("twice");
      group[0].shutdown();
    });
    INFO(layout.name);
    CHECK(outcomes.error(0).code() == ErrorCode::kAborted);
    CHECK_THAT(outcomes.what(0), ContainsSubstring("stop that"));
    CHECK(outcomes.succeeded(2));
  }
}

TEST_CASE("destruction without shutdown, with operations in flight, ends in order") {
  for (const Layout& layout : layouts()) {
    for (int round = 0; round < 5; ++round) {
      Group group(3, layout.environment);
      runRanks(3, [&](int rank) {
        std::vector<TicketPtr> tickets;
        for (int i = 0; i < 10; ++i) {
          tickets.push_back(group[rank].submit(Millis(0),
                                               [](Collectives& c) { allReduceOnes(c, 500); }));
        }
        group.destroy(rank);
        for (const TicketPtr& ticket : tickets) {
          expect(ticket->isDone(), "pending");
          if (const auto error = ticket->error()) throw *error;
        }
      });
    }
  }
}

TEST_CASE("a callback may destroy the group") {
  Group group(2);
  std::atomic<int> destroyed{0};
  runRanks(2, [&](int rank) {
    const TicketPtr ticket =
        group[rank].submit(Millis(0), [](Collectives& c) { allReduceOnes(c); });
    ticket->onDone([&group, &destroyed, rank](const Ticket&) {
      group.destroy(rank);
      ++destroyed;
    });
    expect(eventually([&] { return destroyed.load() == 2; }), "not destroyed");
    expect(!ticket->error(), "failed");
  });
}

TEST_CASE("ranks that do not come to make the group are named, and nothing is left") {
  const auto before = shmNames();
  const auto store = std::make_shared<MemoryStore>();
  const Outcomes outcomes = tryRanks(3, [&](int rank) {
    if (rank == 1) return;
    CommunicatorConfig config;
    config.rank = rank;
    config.size = 3;
    config.store = store;
    config.timeout = Millis(2000);
    Communicator communicator(config);
  });
  for (const int rank : {0, 2}) {
    CHECK(outcomes.error(rank).code() == ErrorCode::kTimeout);
    CHECK_THAT(outcomes.what(rank), ContainsSubstring("rank(s) 1 of 3 did not come"));
  }
  CHECK(shmLeftovers(before) == std::set<std::string>{});
}

TEST_CASE("a rank that is killed ends the group on all others") {
  for (const Layout& layout : layouts()) {
    INFO(layout.name);
    const auto store = std::make_shared<FileStore>();
    ForkedRanks ranks(4, [&](int rank, ForkedRanks::Shared& shared) {
      CommunicatorConfig config;
      config.rank = rank;
      config.size = 4;
      config.store = store;
      config.environment = layout.environment(rank, 4);
      Communicator communicator(config);
      try {
        for (;;) {
          runOn(communicator, [](Collectives& c) { allReduceOnes(c, 5000); });
          ++shared.progress[rank];
        }
      } catch (const Error& error) {
        shared.seconds[rank] =
            std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
        return str(name(error.code()), "|", error.what());
      }
    });
    REQUIRE(eventually([&] { return ranks.shared().progress[0].load() > 5; }));
    const double killed = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
    ranks.kill(3);
    for (int rank = 0; rank < 3; ++rank) {
      const std::string outcome = ranks.outcome(rank);
      INFO("rank " << rank << ": " << outcome);
      CHECK_THAT(outcome, Catch::Matchers::StartsWith("peer failed|"));
      CHECK_THAT(outcome, ContainsSubstring("rank 3"));
      CHECK(ranks.shared().seconds[rank] - killed < 5.0);
    }
  }
}

TEST_CASE("a forked child may neither use nor end its parent's group") {
  for (const Layout& layout : layouts()) {
    INFO(layout.name);
    const auto store = std::make_shared<FileStore>();
    ForkedRanks ranks(2, [&](int rank, ForkedRanks::Shared&) {
      CommunicatorConfig config;
      config.rank = rank;
      config.size = 2;
      config.store = store;
      config.environment = layout.environment(rank, 2);
      auto communicator = std::make_unique<Communicator>(config);
      const TicketPtr before =
          communicator->submit(Millis(0), [](Collectives& c) { allReduceOnes(c); });
      ForkedRanks child(1, [&](int, ForkedRanks::Shared&) {
        std::string text;
        try {
          communicator->run(Millis(0), [](Collectives& c) { c.barrier(); });
        } catch (const Error& error) {
          text = error.what();
        }
        communicator.reset();
        return text;
      });
      const std::string inChild = child.outcome(0);
      if (inChild.find("forked after the group") == std::string::npos) return "child: " + inChild;
      for (int i = 0; i < 20; ++i) {
        runOn(*communicator, [](Collectives& c) { allReduceOnes(c, 9000); });
      }
      return std::string("fine");
    });
    CHECK(ranks.outcome(0) == "fine");
    CHECK(ranks.outcome(1) == "fine");
  }
}

TEST_CASE("ranks that wait for each other on different links learn what the other is in") {
  Group group(4, layouts()[2].environment, Millis(20000));
  runRanks(4, [&](int rank) {
    const Error error = errorOf([&] {
      runOn(group[rank], [&](Collectives& c) {
        std::vector<float> data(64);
        if (rank % 2 == 0) {
          c.allReduce(view(data), {});  // 2D: inside the node first
        } else {
          c.broadcast(view(data), 0);  // over all ranks
        }
      });
    });
    const std::string text = error.what();
    expect(text.find("all_reduce") != std::string::npos, text);
    expect(text.find("broadcast") != std::string::npos, text);
    expect(text.find("Timed out") == std::string::npos, text);
  });
}

TEST_CASE("the reason of a rank that fails before it has connected reaches everybody") {
  for (const Layout& layout : layouts()) {
    INFO(layout.name);
    Group group(4, layout.environment, Millis(20000));
    runRanks(4, [&](int rank) {
      const Error error = errorOf([&] {
        runOn(group[rank], [&](Collectives& c) {
          if (rank == 3) throw Error(ErrorCode::kSystem, "the disk is on fire");
          allReduceOnes(c);
        });
      });
      expect(std::string(error.what()).find("the disk is on fire") != std::string::npos,
             error.what());
    });
  }
}

}  // namespace
}  // namespace taco
