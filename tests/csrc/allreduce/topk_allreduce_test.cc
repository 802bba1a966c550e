// The TopK all-reduce, with ranks as threads, against a reference in plain loops: the same bits on
// every rank and in every residual.
#include "csrc/allreduce/topk_allreduce.h"

#include <cmath>
#include <limits>

#include "csrc/data/half.h"
#include "tests/csrc/allreduce/grid_ranks.h"
#include "tests/csrc/topk/topk_reference.h"

namespace taco {
namespace {

using namespace taco::testing;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float rounded(DType dtype, float value) {
  if (dtype == DType::kFloat16) return fromFloat16(toFloat16(value));
  if (dtype == DType::kBFloat16) return fromBFloat16(toBFloat16(value));
  return value;
}

// What one member of a column (or of all ranks) keeps and sends.
struct ReferenceSender {
  std::vector<float> residual, momentum;

  // The dense list of what is sent.
  std::vector<float> send(const std::vector<float>& gradient, size_t k, const TopkWork& work) {
    residual.resize(gradient.size());
    momentum.resize(gradient.size());
    std::vector<float> acc(gradient.size());
    for (size_t i = 0; i < gradient.size(); ++i) {
      if (work.momentum != 0) {
        momentum[i] = static_cast<float>(work.momentum) * momentum[i] + gradient[i];
      }
      acc[i] = residual[i] + (work.momentum != 0 ? momentum[i] : gradient[i]);
    }
    std::vector<uint32_t> order(acc.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<uint32_t>(i);
    const auto key = [&](uint32_t i) { return std::bit_cast<uint32_t>(acc[i]) & 0x7fffffff; };
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return key(a) > key(b); });
    std::vector<float> sent(acc.size(), 0.0f);
    residual = acc;
    for (size_t j = 0; j < k; ++j) {
      const uint32_t i = order[j];
      float value = acc[i];
      if (work.values == TopkValues::kFloat16) {
        if (std::isfinite(value)) value = std::clamp(value, -65504.0f, 65504.0f);
        value = fromFloat16(toFloat16(value));
      }
      sent[i] = value;
      residual[i] = std::isfinite(acc[i]) ? acc[i] - value : 0;
      if (work.momentum != 0) momentum[i] = 0;
    }
    return sent;
  }
};

// A group's whole training, in plain loops.
struct Reference {
  Reference(const GridRanks& theGroup, bool theIs2d, DType theDtype, size_t theCount,
            const TopkWork& theWork)
      : group(theGroup), is2d(theIs2d), dtype(theDtype), count(theCount), work(theWork) {}

  // Who adds up what: by sender, the ranks whose sum it sends of.
  std::vector<std::vector<int>> senders() const {
    if (is2d) return group.nodes;
    std::vector<std::vector<int>> all;
    for (int rank = 0; rank < group.size(); ++rank) all.push_back({rank});
    return all;
  }

  std::vector<float> step(const std::vector<std::vector<float>>& gradients) {
    const int columns = is2d ? group.columns : 1;
    std::vector<float> result(count);
    bool finite = true;
    for (int column = 0; column < columns; ++column) {
      const ColumnRange range = columnRange(count, columns, column);
      std::vector<float> sum(range.count, 0.0f);
      const size_t k = topkCount(range.count, work.ratio);
      size_t member = 0;
      for (const auto& ranks : senders()) {
        std::vector<float> gradient(range.count);
        for (size_t i = 0; i < range.count; ++i) {
          float ofNode = gradients[static_cast<size_t>(ranks[0])][range.begin + i];
          for (size_t r = 1; r < ranks.size(); ++r) {
            ofNode += gradients[static_cast<size_t>(ranks[r])][range.begin + i];
          }
          gradient[i] = rounded(dtype, ofNode);
        }
        const auto sent = state[{column, member++}].send(gradient, k, work);
        for (size_t i = 0; i < range.count; ++i) {
          if (sent[i] != 0) sum[i] += sent[i];
          finite &= std::isfinite(sent[i]);
        }
      }
      for (size_t i = 0; i < range.count; ++i) {
        result[range.begin + i] = rounded(dtype, sum[i] / static_cast<float>(work.divisor));
      }
    }
    if (!finite) {
      for (auto& [place, sender] : state) {
        std::fill(sender.residual.begin(), sender.residual.end(), 0.0f);
        std::fill(sender.momentum.begin(), sender.momentum.end(), 0.0f);
      }
    }
    return result;
  }

  const GridRanks& group;
  const bool is2d;
  const DType dtype;
  const size_t count;
  const TopkWork work;
  std::map<std::pair<int, size_t>, ReferenceSender> state;  // by column and node
};

struct Run {
  bool is2d;
  DType dtype;
  size_t count;
  TopkWork work;
  std::vector<std::vector<std::vector<float>>> gradients;  // by step and rank
  std::vector<std::vector<float>> expected;                // by step
  std::vector<std::vector<float>> residuals;               // by rank, at the end
};

Run makeRun(const GridRanks& group, bool is2d, DType dtype, size_t count, TopkWork work,
            uint32_t seed, int steps = 3) {
  work.divisor = work.divisor > 1 ? group.size() : 1;
  Run run{is2d, dtype, count, work, {}, {}, {}};
  Reference reference(group, is2d, dtype, count, work);
  std::mt19937 random(seed);
  for (int step = 0; step < steps; ++step) {
    run.gradients.emplace_back();
    for (int rank = 0; rank < group.size(); ++rank) {
      std::vector<float> gradient(count);
      // Small integers, so that many are equal and some are 0, on a few scales.
      for (float& value : gradient) {
        value = rounded(dtype, std::ldexp(static_cast<float>(static_cast<int>(random() % 41) - 20),
                                          -static_cast<int>(random() % 5)));
      }
      run.gradients.back().push_back(gradient);
    }
    run.expected.push_back(reference.step(run.gradients.back()));
  }
  for (int rank = 0; rank < group.size(); ++rank) {
    const TopkLinks links = group.topkLinks(rank, is2d);
    const int column = links.intra == nullptr ? 0 : links.intra->rank();
    const size_t member = links.inter == nullptr ? 0 : static_cast<size_t>(links.inter->rank());
    run.residuals.push_back(links.inter == nullptr ? std::vector<float>()
                                                   : reference.state[{column, member}].residual);
  }
  return run;
}

bool sameBits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

// Runs the steps on every rank; the results and residuals must be the expected ones, bit for bit.
void check(GridRanks& group, const std::vector<Run>& runs) {
  runRanks(group.size(), [&](int rank) {
    OpContext op;
    op.call.op = OpKind::kTopkAllReduce;
    op.deadline = Deadline::after(Millis(60000));
    for (const Run& run : runs) {
      const TopkLinks links = group.topkLinks(rank, run.is2d);
      const ColumnRange slice = topkSlice(run.count, links);
      Residual residual;
      residual.values.resize(slice.count);
      const std::string what =
          str(run.is2d ? "2d" : "flat", " TopK of ", run.count, " ", taco::name(run.dtype),
              ", ratio ", run.work.ratio, ", momentum ", run.work.momentum);
      for (size_t step = 0; step < run.gradients.size(); ++step) {
        ++op.call.sequence;
        Guarded data(run.dtype, stored(run.dtype, run.gradients[step][static_cast<size_t>(rank)]),
                     static_cast<size_t>(rank * 5 % 16));
        allReduceTopk(op, data.buffer(), firstLevel(ReduceOp::kSum, run.dtype), links, run.work,
                      links.inter == nullptr ? nullptr : &residual);
        data.check(stored(run.dtype, run.expected[step]), str(what, ", step ", step));
      }
      if (links.inter == nullptr) continue;
      const auto& expected = run.residuals[static_cast<size_t>(rank)];
      expect(std::equal(residual.values.begin(), residual.values.end(), expected.begin(),
                        expected.end(), sameBits),
             str(what, ": the residual of rank ", rank, " differs"));
    }
  });
}

const std::vector<std::vector<std::vector<int>>> kGrids = {
    {{0}, {1}},       {{0, 1}, {2, 3}},         {{0, 2}, {1, 3}},
    {{0}, {1}, {2}},  {{0, 1}, {2, 3}, {4, 5}}, {{0}, {1, 2}},
    {{0, 1, 2}, {3}}, {{0, 3, 4}, {1, 2}},
};

TEST_CASE("topk: every grid, dtype, ratio and count") {
  for (const auto& nodes : kGrids) {
    for (const LinkKind intra : {LinkKind::kShmYield, LinkKind::kMesh}) {
      GridRanks group(nodes, intra);
      std::vector<Run> runs;
      uint32_t seed = 1;
      for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
        for (const size_t count : {1, 2, 3, 16, 257, 1001}) {
          for (const double ratio : {0.01, 0.3, 0.99}) {
            for (const bool half : {false, true}) {
              const TopkWork work{ratio, half ? TopkValues::kFloat16 : TopkValues::kFloat32, 0,
                                  half ? 2 : 1};
              runs.push_back(makeRun(group, seed % 2 == 0, dtype, count, work, seed));
              ++seed;
            }
          }
        }
      }
      check(group, runs);
    }
  }
}

TEST_CASE("topk: two nodes of eight and four ranks, and sixteen nodes of one") {
  for (const auto& nodes : std::vector<std::vector<std::vector<int>>>{
           {{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11}},
           {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10}, {11}, {12}, {13}, {14}, {15}}}) {
    GridRanks group(nodes, LinkKind::kShmYield);
    std::vector<Run> runs;
    for (const size_t count : {3, 4, 5, 10007}) {
      runs.push_back(makeRun(group, true, DType::kFloat32, count, {0.02, TopkValues::kFloat32, 0, 2},
                             static_cast<uint32_t>(count), 2));
    }
    check(group, runs);
  }
}

TEST_CASE("topk: momentum is corrected and masked") {
  GridRanks group({{0, 1}, {2, 3}}, LinkKind::kShmYield);
  std::vector<Run> runs;
  for (const bool is2d : {false, true}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      runs.push_back(makeRun(group, is2d, dtype, 301, {0.05, TopkValues::kFloat32, 0.5, 1}, 7, 5));
    }
  }
  check(group, runs);
}

// One rank that reduces one buffer of float32 again and again.
struct Repeated {
  Repeated(const GridRanks& group, int rank, bool is2d, size_t count)
      : links(group.topkLinks(rank, is2d)) {
    residual.values.resize(topkSlice(count, links).count);
    op.call.op = OpKind::kTopkAllReduce;
    op.deadline = Deadline::after(Millis(60000));
  }
  void allReduce(std::vector<float>& data, const TopkWork& work) {
    ++op.call.sequence;
    allReduceTopk(op, {data.data(), data.size(), DType::kFloat32},
                  firstLevel(ReduceOp::kSum, DType::kFloat32), links, work, &residual);
  }

  TopkLinks links;
  Residual residual;
  OpContext op;
};

TEST_CASE("topk: what is not finite reaches every rank, and the residuals end with it") {
  for (const float bad : {kNan, -kNan, kInf, -kInf}) {
    for (const bool is2d : {false, true}) {
      for (const size_t howMany : {1, 40}) {
        GridRanks group({{0, 1}, {2, 3}}, LinkKind::kShmYield);
        constexpr size_t kCount = 100;
        runRanks(4, [&](int rank) {
          Repeated self(group, rank, is2d, kCount);
          const std::vector<float>& residual = self.residual.values;
          for (int step = 0; step < 3; ++step) {
            std::vector<float> data(kCount);
            for (size_t i = 0; i < kCount; ++i) data[i] = static_cast<float>(i + 1);
            if (step == 1 && rank == 2) std::fill_n(data.begin() + 3, howMany, bad);
            self.allReduce(data, {0.1, TopkValues::kFloat16, 0, 4});
            const bool finite =
                std::all_of(data.begin(), data.end(), [](float x) { return std::isfinite(x); });
            expect(finite == (step != 1), str("step ", step, " on rank ", rank));
            const bool isClear =
                std::all_of(residual.begin(), residual.end(), [](float x) { return x == 0; });
            expect(isClear == (step == 1), str("the residual after step ", step));
          }
        });
      }
    }
  }
}

TEST_CASE("topk: the example of the books") {
  // [4, 3, 2, 1] every time, one of four is sent: 4 of 0, then 6 of 1, then 8 of 0.
  GridRanks group({{0}, {1}}, LinkKind::kMesh);
  runRanks(2, [&](int rank) {
    Repeated self(group, rank, false, 4);
    std::vector<float> sum(4);
    for (int step = 0; step < 3; ++step) {
      std::vector<float> data = {4, 3, 2, 1};
      self.allReduce(data, {0.25, TopkValues::kFloat32, 0, 2});
      for (size_t i = 0; i < 4; ++i) sum[i] += data[i];
    }
    expect(sum == std::vector<float>{12, 6, 0, 0}, "what was sent");
    expect(self.residual.values == std::vector<float>{0, 3, 6, 3}, "what was not");
  });
}

TEST_CASE("topk: a step that sends everything takes the residual along") {
  for (const bool is2d : {false, true}) {
    for (const double momentum : {0.0, 0.5}) {
      GridRanks group({{0, 1}, {2, 3}}, LinkKind::kShmYield);
      constexpr size_t kCount = 11;
      runRanks(4, [&](int rank) {
        Repeated self(group, rank, is2d, kCount);
        std::vector<float> total(kCount);
        for (int step = 0; step < 4; ++step) {
          std::vector<float> data(kCount);
          for (size_t i = 0; i < kCount; ++i) data[i] = static_cast<float>(i + 1);
          self.allReduce(data, {step == 3 ? 1 : 0.2, TopkValues::kFloat32, momentum, 1});
          for (size_t i = 0; i < kCount; ++i) total[i] += data[i];
        }
        for (const float value : self.residual.values) expect(value == 0, "something is left");
        if (momentum == 0) {
          for (size_t i = 0; i < kCount; ++i) {
            expect(total[i] == 16 * static_cast<float>(i + 1), "something was lost");
          }
        }
      });
    }
  }
}

}  // namespace
}  // namespace taco
