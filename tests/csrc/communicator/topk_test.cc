// TopK all-reduces of whole groups: what the settings compress, residuals that never mix, ranks that
// disagree.
#include <cmath>
#include <new>
#include <thread>

#include "tests/csrc/communicator/group.h"

namespace taco {
namespace {

using namespace taco::testing;

constexpr size_t kCount = 1000;

Environment twoNodes(int rank, int) { return {{"TACO_NODE_ID", str(rank / 2)}}; }
Environment twoNodesTopk(int rank, int) {
  return {{"TACO_NODE_ID", str(rank / 2)},
          {"LIGHT_TOPK_ALLREDUCE", "1"},
          {"LIGHT_TOPK_THRESHOLD", str(kCount * sizeof(float))}};
}

// 1, 2, 3, ... on every rank.
std::vector<float> ramp(size_t count = kCount) {
  std::vector<float> data(count);
  for (size_t i = 0; i < count; ++i) data[i] = static_cast<float>(i + 1);
  return data;
}

size_t nonZeros(const std::vector<float>& data) {
  return static_cast<size_t>(
      std::count_if(data.begin(), data.end(), [](float value) { return value != 0; }));
}

std::vector<float> reduced(Communicator& rank, std::vector<float> data, uint64_t storage,
                           std::optional<TopkRequest> topk = std::nullopt,
                           ReduceOp op = ReduceOp::kSum) {
  runOn(rank, [&](Collectives& c) {
    c.allReduce(view(data), {op}, {BufferIdentity{storage, 0}, topk});
  });
  return data;
}

TEST_CASE("LIGHT_TOPK_ALLREDUCE compresses sums of floats at or above the threshold only") {
  Group group(4, twoNodesTopk);
  runRanks(4, [&](int rank) {
    Communicator& self = group[rank];
    // Two slices of 500, 5 of each: the largest of each slice.
    const std::vector<float> sent = reduced(self, ramp(), 1);
    expect(nonZeros(sent) == 10 && sent[999] == 4000 && sent[495] == 4 * 496, "compressed");
    expect(nonZeros(reduced(self, ramp(kCount - 1), 2)) == kCount - 1, "below the threshold");
    expect(nonZeros(reduced(self, ramp(kCount + 1), 3)) == 10, "above the threshold");
    expect(reduced(self, ramp(), 4, std::nullopt, ReduceOp::kMax) == ramp(), "MAX");
    std::vector<double> doubles(kCount, 1.0);
    std::vector<int64_t> integers(kCount, 1);
    runOn(self, [&](Collectives& c) {
      c.allReduce(view(doubles, DType::kFloat64), {}, {BufferIdentity{5, 0}, std::nullopt});
      c.allReduce(view(integers, DType::kInt64), {}, {BufferIdentity{6, 0}, std::nullopt});
    });
    expect(doubles == std::vector<double>(kCount, 4.0), "float64");
    expect(integers == std::vector<int64_t>(kCount, 4), "int64");
    // Nobody knows whose memory this is: nothing could be kept.
    expect(nonZeros(reduced(self, ramp(), 0)) == kCount, "without an identity");
    std::vector<float> plain = ramp();
    runOn(self, [&](Collectives& c) { c.allReduce(view(plain), {}); });
    expect(nonZeros(plain) == kCount, "an exact all-reduce");
  });
}

TEST_CASE("one node is always dense") {
  Group group(2, [](int, int) {
    return Environment{{"LIGHT_TOPK_ALLREDUCE", "1"}, {"LIGHT_TOPK_THRESHOLD", "0"}};
  });
  runRanks(2, [&](int rank) {
    for (const auto& topk : {std::optional<TopkRequest>(), std::optional(TopkRequest{0.01})}) {
      std::vector<float> expected = ramp();
      for (float& value : expected) value *= 2;
      expect(reduced(group[rank], ramp(), 1, topk) == expected, "one node");
    }
    // Momentum works there too: 1, then 1.5, then 1.75 times the gradient.
    for (const float factor : {2.0f, 3.0f, 3.5f}) {
      const auto result = reduced(group[rank], ramp(), 7, TopkRequest{0.01, false, 0.5});
      expect(result[9] == 10 * factor, str("momentum: ", result[9]));
    }
  });
}

TEST_CASE("what a buffer has not sent is sent later, and belongs to it alone") {
  Group group(4, twoNodes);
  runRanks(4, [&](int rank) {
    Communicator& self = group[rank];
    // Several in flight, of two storages and of two places in one of them.
    const std::vector<BufferIdentity> buffers = {{1, 0}, {2, 0}, {2, 4000}};
    std::vector<std::vector<float>> sums(buffers.size(), std::vector<float>(kCount));
    constexpr int kSteps = 6;
    for (int step = 0; step < kSteps; ++step) {
      std::vector<std::vector<float>> data;
      std::vector<TicketPtr> tickets;
      for (size_t b = 0; b < buffers.size(); ++b) {
        data.push_back(ramp());
        for (float& value : data.back()) value *= static_cast<float>(b + 1);
      }
      const TopkRequest request{step == kSteps - 1 ? 1.0 : 0.05};
      for (size_t b = 0; b < buffers.size(); ++b) {
        tickets.push_back(self.submit(Millis(0), [&, b](Collectives& c) {
          c.allReduce(view(data[b]), {}, {buffers[b], request});
        }));
      }
      for (const TicketPtr& ticket : tickets) {
        expect(ticket->wait(Deadline::after(Millis(60000))) && !ticket->error(), "in flight");
      }
      for (size_t b = 0; b < buffers.size(); ++b) {
        if (step < kSteps - 1) expect(nonZeros(data[b]) == 50, "5 %");
        for (size_t i = 0; i < kCount; ++i) sums[b][i] += data[b][i];
      }
    }
    // The last step was dense: all there ever was has arrived.
    for (size_t b = 0; b < buffers.size(); ++b) {
      for (size_t i = 0; i < kCount; ++i) {
        expect(sums[b][i] == 4.0f * kSteps * static_cast<float>((b + 1) * (i + 1)), "the sum");
      }
    }
  });
}

TEST_CASE("residuals can be looked at, scaled, and end with their storage") {
  Group group(4, twoNodes);
  runRanks(4, [&](int rank) {
    Communicator& self = group[rank];
    reduced(self, ramp(), 1, TopkRequest{0.01});
    reduced(self, ramp(), 2, TopkRequest{0.01, false, 0.9});
    const auto stats = [&] {
      ResidualStats found;
      self.withResiduals([&](Residuals& residuals) { found = residuals.stats(); });
      return found;
    };
    const auto place = self.residualPlace(kCount, DType::kFloat32);
    expect(place.domain == ResidualDomain::k2d && place.count == 500 &&
               place.begin == static_cast<size_t>(rank % 2) * 500,
           "the place");
    expect(stats().count == 2 && stats().bytes == (500 + 500 + 500) * 4, "two");
    const double norm = stats().norm;
    self.withResiduals([](Residuals& residuals) {
      for (const auto& one : residuals.all()) one->scale(0.5f);
    });
    expect(std::abs(stats().norm - norm / 2) < 1e-6 * norm, "half");
    self.forgetResiduals(1);
    expect(stats().count == 1, "the storage has died");
    self.withResiduals([](Residuals& residuals) {
      for (const auto& one : residuals.all()) one->clear();
    });
    expect(stats().norm == 0 && stats().count == 1, "clear");
  });
}

TEST_CASE("residuals can be looked at inside an operation, and an exception there is the caller's") {
  Group group(2, [](int rank, int) { return Environment{{"TACO_NODE_ID", str(rank)}}; });
  runRanks(2, [&](int rank) {
    Communicator& self = group[rank];
    size_t seen = 0;
    runOn(self, [&](Collectives& c) {
      std::vector<float> data = ramp();
      c.allReduce(view(data), {}, {BufferIdentity{1, 0}, TopkRequest{0.01}});
      // As a callback does, while the operation still has the lane.
      self.withResiduals([&](Residuals& residuals) { seen = residuals.stats().count; });
    });
    expect(seen == 1, "inside");
    bool thrown = false;
    try {
      self.withResiduals([](Residuals&) { throw std::bad_alloc(); });
    } catch (const std::bad_alloc&) {
      thrown = true;
    }
    expect(thrown && !self.failure(), "an exception of the caller's");
    expect(nonZeros(reduced(self, ramp(), 1, TopkRequest{0.01})) == 10, "the group works");
  });
}

TEST_CASE("a group that has failed has no residuals to save") {
  Group group(2, [](int rank, int) { return Environment{{"TACO_NODE_ID", str(rank)}}; });
  const Outcomes outcomes = tryRanks(2, [&](int rank) {
    reduced(group[rank], ramp(), 1, TopkRequest{0.01});
    try {
      reduced(group[rank], ramp(), 1, TopkRequest{rank == 0 ? 0.01 : 0.02});
    } catch (const Error&) {
    }
    while (!group[rank].failure()) std::this_thread::yield();
    group[rank].withResiduals([](Residuals&) {});
  });
  for (int rank = 0; rank < 2; ++rank) {
    CHECK_THAT(outcomes.what(rank), Catch::Matchers::ContainsSubstring("topk_all_reduce"));
  }
}

TEST_CASE("views of one place with other elements have residuals of their own") {
  Group group(2, [](int rank, int) { return Environment{{"TACO_NODE_ID", str(rank)}}; });
  runRanks(2, [&](int rank) {
    for (const uint64_t layout : {0, 17}) {
      std::vector<float> data = ramp();
      runOn(group[rank], [&](Collectives& c) {
        c.allReduce(view(data), {}, {BufferIdentity{1, 0, layout}, TopkRequest{0.01}});
      });
      expect(data[999] == 2000, "nothing of the other");
    }
    size_t count = 0;
    group[rank].withResiduals([&](Residuals& residuals) { count = residuals.stats().count; });
    expect(count == 2, "two of them");
  });
}

TEST_CASE("the warm-up counts all-reduces of a size") {
  Group group(2, [](int rank, int) {
    return Environment{{"TACO_NODE_ID", str(rank)},
                       {"LIGHT_TOPK_ALLREDUCE", "1"},
                       {"LIGHT_TOPK_THRESHOLD", "0"},
                       {"TACO_TOPK_WARMUP_STEPS", "8"}};
  });
  runRanks(2, [&](int rank) {
    std::vector<size_t> sent;
    for (int step = 0; step < 10; ++step) sent.push_back(nonZeros(reduced(group[rank], ramp(), 1)));
    // 2 dense, and as long as the ratio is at or above the break-even of one half.
    expect(sent[0] == kCount && sent[1] == kCount && sent[2] == kCount, "dense");
    for (size_t step = 3; step < 8; ++step) {
      expect(sent[step] < sent[step - 1] && sent[step] > 10, str("step ", step, ": ", sent[step]));
    }
    expect(sent[8] == 10 && sent[9] == 10, "1 %");
    expect(nonZeros(reduced(group[rank], ramp(kCount + 1), 2)) == kCount + 1, "another size");
  });
}

TEST_CASE("ranks that compress differently tell each other") {
  const std::vector<std::function<std::vector<float>(Communicator&)>> calls = {
      [](Communicator& c) { return reduced(c, ramp(), 1, TopkRequest{0.01}); },
      [](Communicator& c) { return reduced(c, ramp(), 1, TopkRequest{0.02}); },
      [](Communicator& c) { return reduced(c, ramp(), 1, TopkRequest{0.01, true}); },
      [](Communicator& c) { return reduced(c, ramp(), 1, TopkRequest{1.0}); },
      [](Communicator& c) { return reduced(c, ramp(), 1, TopkRequest{0.01, false, 0.9}); },
      [](Communicator& c) { return reduced(c, ramp(), 1, TopkRequest{0.0105}); },  // rounds to as many
  };
  for (size_t other = 1; other < calls.size(); ++other) {
    Group group(4, twoNodes);
    const Outcomes outcomes =
        tryRanks(4, [&](int rank) { calls[rank == 2 ? other : 0](group[rank]); });
    for (int rank = 0; rank < 4; ++rank) {
      CHECK_THAT(outcomes.what(rank), Catch::Matchers::ContainsSubstring("all_reduce"));
    }
  }
}

TEST_CASE("what cannot be compressed is refused before anything is sent") {
  Group group(2, [](int rank, int) { return Environment{{"TACO_NODE_ID", str(rank)}}; });
  runRanks(2, [&](int rank) {
    try {
      reduced(group[rank], ramp(), 1, TopkRequest{0.01}, ReduceOp::kMax);
      expect(false, "MAX was compressed");
    } catch (const Error& error) {
      expect(error.code() == ErrorCode::kUnsupported &&
                 std::string(error.what()).find("MAX of float32") != std::string::npos,
             error.what());
    }
    expect(nonZeros(reduced(group[rank], ramp(), 1, TopkRequest{0.01})) == 10, "the group works");
  });
}

TEST_CASE("settings of TopK that differ between ranks are an error on all of them") {
  for (const char* name : {"LIGHT_TOPK_ALLREDUCE", "LIGHT_TOPK_RATIO", "LIGHT_TOPK_THRESHOLD",
                           "LIGHT_TOPK_FP16", "TACO_TOPK_WARMUP_STEPS"}) {
    const auto store = std::make_shared<MemoryStore>();
    const Outcomes outcomes = tryRanks(3, [&](int rank) {
      CommunicatorConfig config;
      config.rank = rank;
      config.size = 3;
      config.store = store;
      config.environment = {{"MASTER_ADDR", "127.0.0.1"}, {name, rank == 2 ? "1" : ""}};
      config.timeout = Millis(60000);
      Communicator communicator(config);
    });
    for (int rank = 0; rank < 3; ++rank) {
      CHECK_THAT(outcomes.what(rank), Catch::Matchers::ContainsSubstring(name));
    }
  }
}

}  // namespace
}  // namespace taco
