#pragma once

#include <optional>

#include "launch/launch.h"
#include "launch/reading.h"

namespace taco {

// The TI platform's numbers of GPUs: in all (GPU_NUM), on a node (GPU_NUM_PER_NODE), and `launch`'s
// hosts, which `list` gave. E4 where they, or the number of nodes, contradict each other.
struct GpuCounts {
  std::optional<int> all;
  std::optional<int> perNode;
  std::string list;
};

void checkGpuCounts(const Reading& reading, const Launch& launch, const GpuCounts& counts);

}  // namespace taco
