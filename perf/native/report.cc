#include "perf/native/report.h"

#include <cstdio>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "csrc/base/format.h"

namespace taco::perf {
namespace {

std::string cpuModel() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string text; std::getline(info, text);) {
    const size_t colon = text.find(": ");
    if (text.starts_with("model name") && colon != std::string::npos) return text.substr(colon + 2);
  }
  return "unknown";
}

std::string utcNow() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

std::string firstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

template <typename... Values>
std::string formatted(const char* format, Values... values) {
  char text[512];
  const int length = std::snprintf(text, sizeof text, format, values...);
  return {text, static_cast<size_t>(std::min<int>(length, sizeof text - 1))};
}

}  // namespace

RunFacts factsOf(const StartLine& startLine, double flagNs, const Contenders& contenders) {
  RunFacts facts;
  facts.ranks = startLine.size();
  facts.usableCpus = startLine.usableCpus();
  facts.flagNs = flagNs;
  facts.cpu = cpuModel();
  facts.started = utcNow();
  for (const auto& contender : contenders) {
    std::string text = str(contender->name(), ": ", firstLine(contender->describe()));
    if (!contender->settings().empty()) text += str(" [", contender->settings(), "]");
    facts.contenders.push_back(text);
  }
  return facts;
}

std::string headline(const Options& options, const RunFacts& facts) {
  std::string text =
      str("# core to core flag: ", formatted("%.0f", facts.flagNs), " ns; ", facts.ranks,
          " ranks on ", facts.usableCpus, " usable cores (", facts.cpu, "), ", facts.started,
          "\n# ", name(options.operation), " ", name(options.type),
          "; time: slowest rank, median of the repeats; cpu: all ranks, one operation\n");
  for (const std::string& contender : facts.contenders) text += str("# ", contender, "\n");
  return text;
}

std::string line(const std::vector<Figure>& figures) {
  if (figures.empty()) return "nobody has this operation\n";
  std::string text = formatted("%11zu B", figures.front().bytes);
  for (const Figure& figure : figures) {
    text += formatted("  %s %.2f us (p99 %.2f, %.3f GB/s, cpu %.2f us, wrong %zu)",
                      figure.backend.c_str(), figure.timeUs, figure.p99Us, figure.algbwGbs,
                      figure.cpuSeconds * 1e6, figure.wrong);
    if (&figure != &figures.front())
      text += formatted(" %.2fx", figure.timeUs / figures.front().timeUs);
  }
  return text + "\n";
}

void writeJson(const std::string& path, const Options& options, const RunFacts& facts,
               const std::vector<Figure>& figures) {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const Figure& figure : figures) {
    results.push_back({{"bytes", figure.bytes},
                       {"count", figure.count},
                       {"type", name(options.type)},
                       {"op", name(options.operation)},
                       {"backend", figure.backend},
                       {"algorithm", figure.algorithm},
                       {"time_us", figure.timeUs},
                       {"p50_us", figure.p50Us},
                       {"p99_us", figure.p99Us},
                       {"min_us", figure.minUs},
                       {"algbw_gbs", figure.algbwGbs},
                       {"busbw_gbs", figure.busbwGbs},
                       {"wrong", figure.wrong},
                       {"cpu_seconds", figure.cpuSeconds},
                       {"repeats", figure.repeats},
                       {"batch", figure.batch},
                       {"settings", figure.settings}});
  }
  const nlohmann::ordered_json whole = {{"machine",
                                         {{"ranks", facts.ranks},
                                          {"usable_cpus", facts.usableCpus},
                                          {"cpu", facts.cpu},
                                          {"flag_ns", facts.flagNs},
                                          {"started", facts.started},
                                          {"contenders", facts.contenders}}},
                                        {"figures", results}};
  std::ofstream file(path);
  file << whole.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
  file.close();
  if (!file) throw std::runtime_error(str("--json ", path, ": cannot be written"));
}

}  // namespace taco::perf
