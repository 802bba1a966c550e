#pragma once

#include <memory>
#include <string>
#include <vector>

#include "perf/native/contender.h"

namespace taco::perf {

// What one contender needed for one size. Times: the slowest rank of each repeat.
struct Figure {
  size_t bytes = 0;
  size_t count = 0;
  std::string backend;
  std::string algorithm;
  std::string settings;
  double timeUs = 0;  // median
  double p50Us = 0;
  double p99Us = 0;
  double minUs = 0;
  double algbwGbs = 0;
  double busbwGbs = 0;
  size_t wrong = 0;       // elements, over all ranks and repeats
  double cpuSeconds = 0;  // of one operation, all ranks together: median
  int repeats = 0;
  int batch = 1;  // operations between two clock reads
};

using Contenders = std::vector<std::unique_ptr<Contender>>;

// All contenders at one size, one after the other in every repeat, on the same memory. Collective;
// the figures are those of all ranks together and the same on each. A contender that has no such
// operation is left out.
std::vector<Figure> measure(const Options& options, size_t bytes, Contenders& contenders,
                            StartLine& startLine);

}  // namespace taco::perf
