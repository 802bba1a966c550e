// taco_topk_bench: the TopK selection with error feedback, and the scatter-add of several payloads,
// in host memory on one thread. Everybody works on memory of the same size, in turns, repeat after
// repeat; medians are shown, and ratios to what the memory allows. Gaussian gradients, another one
// at each repeat; the residual is what the repeats before left.
//
//   taco_topk_bench [--count 4194304] [--ratio 0.01] [--payloads 4] [--repeats 15] [--fp16] [--json
//   FILE]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "csrc/base/format.h"
#include "csrc/topk/kth_key.h"
#include "csrc/topk/scatter_add.h"
#include "csrc/topk/select.h"
#include "csrc/topk/select_kernels.h"
#include "perf/topk/floor.h"

namespace taco::perf {
namespace {

struct Options {
  size_t count = size_t{4} << 20;
  double ratio = 0.01;
  size_t payloads = 4;
  int repeats = 15;
  TopkValues values = TopkValues::kFloat32;
  std::string json;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--fp16") {
      options.values = TopkValues::kFloat16;
      continue;
    }
    if (i + 1 == argc) throw std::invalid_argument(str(name, " lacks a value, or is unknown"));
    const std::string value = argv[++i];
    if (name == "--json") {
      options.json = value;
      continue;
    }
    char* end = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    if (value.empty() || *end != '\0' || !(number >= 0 && number < 0x1p32)) {
      throw std::invalid_argument(str(name, " ", value, ": pass a number"));
    }
    if (name == "--count") {
      options.count = static_cast<size_t>(number);
    } else if (name == "--ratio") {
      options.ratio = number;
    } else if (name == "--payloads") {
      options.payloads = static_cast<size_t>(number);
    } else if (name == "--repeats") {
      options.repeats = static_cast<int>(std::min(number, 1e6));
    } else {
      throw std::invalid_argument(str(name, " is unknown: see perf/topk/main.cc"));
    }
  }
  if (options.count == 0 || options.payloads == 0 || options.repeats < 1) {
    throw std::invalid_argument("--count, --payloads and --repeats are at least 1");
  }
  return options;
}

// Times by name, in the order of their first appearance.
class Times {
 public:
  void measure(const std::string& name, const std::function<void()>& what) {
    const auto begin = std::chrono::steady_clock::now();
    what();
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - begin;
    if (!byName_.contains(name)) names_.push_back(name);
    byName_[name].push_back(spent.count());
  }
  double median(const std::string& name) const {
    std::vector<double> sorted = byName_.at(name);
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  double least(const std::string& name) const {
    return *std::min_element(byName_.at(name).begin(), byName_.at(name).end());
  }
  // Of one repeat to the same repeat of another: what disturbed one has probably disturbed both.
  double ratio(const std::string& name, const std::string& to) const {
    std::vector<double> ratios;
    for (size_t i = 0; i < byName_.at(name).size(); ++i) {
      ratios.push_back(byName_.at(name)[i] / byName_.at(to)[i]);
    }
    std::sort(ratios.begin(), ratios.end());
    return ratios[ratios.size() / 2];
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
  std::map<std::string, std::vector<double>> byName_;
};

// Zeros at a line boundary, where torch's memory begins too.
class Floats {
 public:
  explicit Floats(size_t count) : memory_(count + kLine) {
    void* begin = memory_.data();
    size_t bytes = memory_.size() * sizeof(float);
    begin_ =
        static_cast<float*>(std::align(kLine * sizeof(float), count * sizeof(float), begin, bytes));
  }
  float* data() { return begin_; }
  static constexpr size_t kLine = 16;

 private:
  std::vector<float> memory_;
  float* begin_;
};

// Other data than what is measured, and nothing that is still to be written back: as after a
// backward pass, and the same for everybody.
class Caches {
 public:
  void fillWithOthers() {
    float sum = 0;
    for (size_t i = 0; i < others_.size(); i += Floats::kLine) sum += others_[i];
    if (sum != 0) throw std::runtime_error("the other data have changed");
  }

 private:
  std::vector<float> others_ = std::vector<float>(size_t{32} << 20);
};

void drawGaussian(float* values, size_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < count; ++i) values[i] = normal(random);
}

const char* const kAdd = "r += g";
const char* const kSelect = "select";
const char* const kNth = "nth_element on pairs";
const char* const kMemset = "memset";
const char* const kFill = "fill";
const char* const kScatter = "scatter-add";

// What select() does when the guess fits, one phase after the other, to be timed.
class Phases {
 public:
  Phases(size_t count, size_t k) : count_(count), residual_(count), k_(k), payload_(k * 8) {
    found_.reserve(std::min(count, std::max<size_t>(4 * k, 16384)));
  }

  void run(Times& times, const float* gradient, uint32_t minKey) {
    using namespace topk_internal;
    const size_t count = count_;
    const ConstBuffer buffer(gradient, count, DType::kFloat32);
    bool complete = false;
    times.measure("  add, compare, compact",
                  [&] { complete = accumulate(buffer, residual_.data(), minKey, found_); });
    if (!complete || found_.count < k_) {
      ++misses_;
      minKey = 1;
      Found all;
      all.reserve(count);
      compact(residual_.data(), count, minKey, all);
      std::swap(found_, all);
    }
    KthKey kth;
    times.measure("  k-th key", [&] {
      const uint32_t high = largestKey(found_.values.get(), found_.count);
      kth = kthKey(found_.values.get(), found_.count, k_, minKey, high);
    });
    times.measure("  choose k", [&] { chooseAgain(kth.key, kth.ties, found_); });
    times.measure("  payload", [&] {
      std::memcpy(payload_.data(), found_.indices.get(), k_ * 4);
      std::memcpy(payload_.data() + k_ * 4, found_.values.get(), k_ * 4);
    });
    times.measure("  zero the chosen", [&] {
      for (size_t j = 0; j < k_; ++j) residual_.data()[found_.indices[j]] = 0;
    });
  }

 private:
  size_t count_;
  Floats residual_;
  size_t k_;
  int misses_ = 0;
  std::vector<char> payload_;
  topk_internal::Found found_;
};

// Until the residual has filled up some, and thresholds no longer jump.
constexpr int kWarmUp = 10;

Times measure(const Options& options) {
  const size_t count = options.count;
  const PayloadLayout layout{topkCount(count, options.ratio), options.values};
  // The gradients of the repeats are stretches of one sequence that begin one cache line apart.
  const size_t turns = static_cast<size_t>(options.repeats) + kWarmUp;
  Floats sequence(count + turns * Floats::kLine);
  drawGaussian(sequence.data(), count + turns * Floats::kLine);
  Floats residual(count);
  Floats plain(count);
  Floats dense(count);
  std::vector<std::vector<char>> payloads(options.payloads, std::vector<char>(layout.bytes()));
  std::vector<const void*> payloadPointers;
  std::vector<std::vector<char>> received = payloads;
  for (const auto& payload : received) payloadPointers.push_back(payload.data());
  Selector selector;
  Phases phases(count, layout.k);
  Pairs pairs;

  Caches caches;
  Times times;
  Times warmUp;
  for (int repeat = -kWarmUp; repeat < options.repeats; ++repeat) {
    Times& to = repeat < 0 ? warmUp : times;
    const size_t turn = static_cast<size_t>(repeat + kWarmUp);
    const float* const gradient = sequence.data() + turn * Floats::kLine;
    const uint32_t minKey = topk_internal::keyOf(selector.guess());
    caches.fillWithOthers();
    to.measure(kAdd, [&] { add(plain.data(), gradient, count); });
    caches.fillWithOthers();
    to.measure(kSelect, [&] {
      selector.select({gradient, count, DType::kFloat32}, residual.data(), layout,
                      payloads[turn % options.payloads].data());
    });
    caches.fillWithOthers();
    phases.run(to, gradient, minKey);
    to.measure(kNth, [&] { nthElement(gradient, count, layout.k, pairs); });
    caches.fillWithOthers();
    to.measure(kMemset, [&] { std::memset(dense.data(), 0, count * sizeof(float)); });
    caches.fillWithOthers();
    to.measure(kFill, [&] { fill(dense.data(), count, 1.0f); });
    if (turn >= options.payloads) {
      caches.fillWithOthers();
      received = payloads;  // as if just received
      to.measure(kScatter, [&] {
        scatterAdd(payloadPointers, layout, {dense.data(), count, DType::kFloat32}, 4);
      });
    }
  }
  return times;
}

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const Times times = measure(options);
  std::printf("# %zu float32, ratio %g, %s values, %zu payloads; ms, median of %d repeats\n",
              options.count, options.ratio,
              options.values == TopkValues::kFloat32 ? "float32" : "float16", options.payloads,
              options.repeats);
  nlohmann::ordered_json figures = nlohmann::ordered_json::array();
  for (const std::string& name : times.names()) {
    const bool scatters = name == kMemset || name == kFill || name == kScatter;
    const char* const floor = scatters ? kMemset : kAdd;
    std::printf("%-24s %9.3f  (least %9.3f)  %6.2f x %s", name.c_str(), times.median(name),
                times.least(name), times.ratio(name, floor), floor);
    if (name == kScatter) std::printf("  %6.2f x %s", times.ratio(name, kFill), kFill);
    std::printf("\n");
    const size_t start = name.find_first_not_of(' ');
    figures.push_back({{"count", options.count},
                       {"ratio", options.ratio},
                       {"what", name.substr(start)},
                       {"phase_of_select", start != 0},
                       {"median_ms", times.median(name)},
                       {"least_ms", times.least(name)},
                       {"times_the_floor", times.ratio(name, floor)},
                       {"floor", floor},
                       {"repeats", options.repeats}});
  }
  if (!options.json.empty()) {
    std::ofstream file(options.json);
    file << nlohmann::ordered_json{{"figures", figures}}.dump(1) << '\n';
    file.close();
    if (!file) throw std::runtime_error(str("--json ", options.json, ": cannot be written"));
  }
  return 0;
}

}  // namespace
}  // namespace taco::perf

int main(int argc, char** argv) {
  try {
    return taco::perf::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "taco_topk_bench: %s\n", error.what());
    return 2;
  }
}
