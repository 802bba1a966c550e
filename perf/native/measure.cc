#include "perf/native/measure.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <new>

#include "perf/native/problem.h"

namespace taco::perf {
namespace {

// As an allocator gives a large tensor: ordinary memory on a page of its own.
class Memory {
 public:
  explicit Memory(size_t bytes) : data_(static_cast<char*>(::operator new(bytes, kAlignment))) {
    std::fill(data_, data_ + bytes, 0);
  }
  ~Memory() { ::operator delete(data_, kAlignment); }
  Memory(const Memory&) = delete;
  char* data() const { return data_; }

 private:
  static constexpr std::align_val_t kAlignment{4096};
  char* data_;
};

double cpuSecondsOfProcess() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double fromSorted(const std::vector<double>& sorted, double fraction) {
  const auto last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<size_t>(std::llround(fraction * last))];
}

int repeatsFor(size_t bytes) {
  constexpr size_t kMi = size_t{1} << 20;
  if (bytes >= 64 * kMi) return 7;
  if (bytes >= 16 * kMi) return 11;
  if (bytes >= 4 * kMi) return 31;
  if (bytes >= kMi) return 61;
  if (bytes >= kMi / 4) return 151;
  return 301;
}

// What all contenders together may take at one size. A peer that spins where ranks share cores
// needs milliseconds for 8 bytes: then fewer repeats and smaller batches do.
constexpr double kSecondsPerSize = 6;
constexpr int kFewestRepeats = 5;

// A single small operation is shorter than what reading the clock and leaving the start line
// together can tell. The batch stays inside the first cache, or inside the second where the ranks
// share cores and being scheduled costs as much as many operations.
int batchFor(const Options& options, size_t bytes, bool coresForAll) {
  constexpr size_t kMost = 50;
  const size_t inCache =
      options.batchBytes != 0 ? options.batchBytes : size_t{coresForAll ? 32u : 256u} * 1024;
  return static_cast<int>(std::clamp<size_t>(inCache / bytes, 1, kMost));
}

double busFactor(Operation operation, int size) {
  const double ranks = size;
  switch (operation) {
    case Operation::kAllReduce:
      return 2 * (ranks - 1) / ranks;
    case Operation::kBroadcast:
      return 1;
    case Operation::kAllGather:
    case Operation::kReduceScatter:
    case Operation::kAllToAll:
      return (ranks - 1) / ranks;
  }
  return 1;
}

// One contender's turn: a batch of operations, each on memory of its own that has just been
// written.
class Bench {
 public:
  Bench(const Options& options, size_t bytes, StartLine& startLine)
      : options_(options),
        startLine_(startLine),
        countEach_(countEach(options, bytes, startLine.size())),
        problem_(options.operation, options.type, countEach_, startLine.rank(), startLine.size()),
        batch_(batchFor(options, problem_.totalBytes(), startLine.coresForAll())),
        inStride_(aligned(problem_.inBytes())),
        outStride_(aligned(problem_.outBytes())),
        in_(inStride_ * static_cast<size_t>(batch_)),
        out_(outStride_ * static_cast<size_t>(batch_)) {}

  const Problem& problem() const { return problem_; }
  size_t elements() const { return problem_.totalBytes() / elementBytes(options_.type); }
  int batch() const { return batch_; }

  Call call(int index) const {
    const auto at = static_cast<size_t>(index);
    return {options_.operation, options_.type, countEach_, in_.data() + at * inStride_,
            out_.data() + at * outStride_};
  }

  struct Outcome {
    bool supported = true;
    double seconds = 0;     // of one operation, on this rank
    double cpuSeconds = 0;  // likewise
    size_t wrong = 0;
  };

  Outcome turn(Contender& contender, int batch, int repeat, bool corrupt) {
    Outcome outcome;
    for (int i = 0; i < batch; ++i) problem_.fill(call(i).in, repeat + i);
    startLine_.wait();
    const double cpuBefore = cpuSecondsOfProcess();
    const auto began = std::chrono::steady_clock::now();
    for (int i = 0; i < batch && outcome.supported; ++i) outcome.supported = contender.run(call(i));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    outcome.cpuSeconds = (cpuSecondsOfProcess() - cpuBefore) / batch;
    outcome.seconds = took.count() / batch;
    if (!outcome.supported) return outcome;
    if (corrupt) ++*result(0);
    for (int i = 0; i < batch; ++i) outcome.wrong += problem_.wrong(result(i), repeat + i);
    return outcome;
  }

 private:
  static size_t countEach(const Options& options, size_t bytes, int size) {
    const bool whole =
        options.operation == Operation::kAllReduce || options.operation == Operation::kBroadcast;
    const size_t block = whole ? 1 : static_cast<size_t>(size);
    return std::max<size_t>(1, bytes / elementBytes(options.type) / block);
  }
  static size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }
  char* result(int index) const {
    return problem_.outBytes() == 0 ? call(index).in : call(index).out;
  }

  const Options& options_;
  StartLine& startLine_;
  const size_t countEach_;
  const Problem problem_;
  const int batch_;  // at most
  const size_t inStride_;
  const size_t outStride_;
  const Memory in_;
  const Memory out_;
};

// Of one contender, by repeat, on this rank.
struct Samples {
  bool supported = true;
  std::vector<double> seconds;
  std::vector<double> cpuSeconds;
  double wrong = 0;
};

struct Plan {
  int firstRepeat = 0;  // the values of the repeats before it were those of the warm-up
  int repeats = 0;
  int batch = 1;
};

// Runs everybody a few times, one operation at a time, and plans the measurement by what that took.
Plan warmUp(const Options& options, size_t bytes, Bench& bench, Contenders& contenders,
            std::vector<Samples>& samples, StartLine& startLine) {
  Plan plan;
  plan.firstRepeat = bytes >= (size_t{1} << 22) ? 2 : 5;
  plan.repeats = options.repeats.value_or(repeatsFor(bytes));
  double secondsOfAll = 0;
  for (size_t which = 0; which < contenders.size(); ++which) {
    std::vector<double> seconds;
    for (int repeat = 0; repeat < plan.firstRepeat && samples[which].supported; ++repeat) {
      const Bench::Outcome outcome = bench.turn(*contenders[which], 1, repeat, false);
      samples[which].supported = outcome.supported;
      samples[which].wrong += static_cast<double>(outcome.wrong);
      seconds.push_back(outcome.seconds);
    }
    std::sort(seconds.begin(), seconds.end());
    double typical = 0;  // the same on all ranks, as what follows from it must be
    for (const auto& one : startLine.gather({fromSorted(seconds, 0.5)})) {
      typical = std::max(typical, one[0]);
    }
    secondsOfAll += typical;
  }
  const double secondsEach = kSecondsPerSize / kFewestRepeats;
  plan.batch = static_cast<int>(
      std::clamp<double>(secondsEach / std::max(secondsOfAll, 1e-9), 1, bench.batch()));
  if (!options.repeats) {
    const int fewest = std::min(plan.repeats, kFewestRepeats);
    const double affordable = kSecondsPerSize / std::max(secondsOfAll * plan.batch, 1e-9);
    plan.repeats = static_cast<int>(std::clamp<double>(affordable, fewest, plan.repeats));
  }
  return plan;
}

Figure figureOf(const Options& options, const Bench& bench, const Contender& contender,
                const Samples& samples, int batch, StartLine& startLine) {
  const auto seconds = startLine.gather(samples.seconds);
  const auto cpuSeconds = startLine.gather(samples.cpuSeconds);
  Figure figure;
  for (const auto& one : startLine.gather({samples.wrong})) {
    figure.wrong += static_cast<size_t>(one[0]);
  }
  std::vector<double> slowest(samples.seconds.size(), 0);
  std::vector<double> cpu(samples.seconds.size(), 0);
  for (size_t repeat = 0; repeat < slowest.size(); ++repeat) {
    for (size_t rank = 0; rank < seconds.size(); ++rank) {
      slowest[repeat] = std::max(slowest[repeat], seconds[rank][repeat]);
      cpu[repeat] += cpuSeconds[rank][repeat];
    }
  }
  std::sort(slowest.begin(), slowest.end());
  std::sort(cpu.begin(), cpu.end());
  figure.bytes = bench.problem().totalBytes();
  figure.count = bench.elements();
  figure.backend = contender.name();
  figure.algorithm = contender.algorithm(bench.call(0));
  figure.settings = contender.settings();
  figure.p50Us = fromSorted(slowest, 0.5) * 1e6;
  figure.timeUs = figure.p50Us;
  figure.p99Us = fromSorted(slowest, 0.99) * 1e6;
  figure.minUs = slowest.front() * 1e6;
  figure.algbwGbs = static_cast<double>(figure.bytes) / figure.timeUs * 1e-3;
  figure.busbwGbs = figure.algbwGbs * busFactor(options.operation, startLine.size());
  figure.cpuSeconds = fromSorted(cpu, 0.5);
  figure.repeats = static_cast<int>(slowest.size());
  figure.batch = batch;
  return figure;
}

}  // namespace

std::vector<Figure> measure(const Options& options, size_t bytes, Contenders& contenders,
                            StartLine& startLine) {
  Bench bench(options, bytes, startLine);
  std::vector<Samples> samples(contenders.size());
  const Plan plan = warmUp(options, bytes, bench, contenders, samples, startLine);
  for (int repeat = 0; repeat < plan.repeats; ++repeat) {
    for (size_t turn = 0; turn < contenders.size(); ++turn) {
      // Everybody is first as often as the others: who comes after whom matters for the caches.
      const size_t which = (turn + static_cast<size_t>(repeat)) % contenders.size();
      Samples& own = samples[which];
      if (!own.supported) continue;
      const bool corrupt =
          repeat == 0 && startLine.rank() == 0 && contenders[which]->name() == options.corrupt;
      const Bench::Outcome outcome =
          bench.turn(*contenders[which], plan.batch, plan.firstRepeat + repeat, corrupt);
      own.wrong += static_cast<double>(outcome.wrong);
      own.seconds.push_back(outcome.seconds);
      own.cpuSeconds.push_back(outcome.cpuSeconds);
    }
  }
  std::vector<Figure> figures;
  for (size_t which = 0; which < contenders.size(); ++which) {
    if (samples[which].supported) {
      figures.push_back(
          figureOf(options, bench, *contenders[which], samples[which], plan.batch, startLine));
    }
  }
  return figures;
}

}  // namespace taco::perf
