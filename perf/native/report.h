#pragma once

#include <string>
#include <vector>

#include "perf/native/measure.h"

namespace taco::perf {

// What holds for the whole run.
struct RunFacts {
  int ranks = 1;
  int usableCpus = 1;
  double flagNs = 0;  // core to core
  std::string cpu;
  std::string started;                  // UTC
  std::vector<std::string> contenders;  // "name: what it says of itself"
};

RunFacts factsOf(const StartLine& startLine, double flagNs, const Contenders& contenders);

std::string headline(const Options& options, const RunFacts& facts);
std::string line(
    const std::vector<Figure>& figures);  // one size: the first one, and the others' ratios to it
void writeJson(const std::string& path, const Options& options, const RunFacts& facts,
               const std::vector<Figure>& figures);

}  // namespace taco::perf
