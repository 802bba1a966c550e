#include "launch/gpu_counts.h"

#include <cstdint>

#include "csrc/base/format.h"
#include "launch/node_list.h"

namespace taco {

void checkGpuCounts(const Reading& reading, const Launch& launch, const GpuCounts& counts) {
  const auto& [gpus, perNode, list] = counts;
  const std::string hosts = launch.hosts.empty() ? ""
                                                 : str(list, " has ", sumOfSlots(launch.hosts),
                                                       " (", hostsText(launch.hosts), ")");
  if (gpus && !launch.hosts.empty() && *gpus != sumOfSlots(launch.hosts)) {
    reading.fail(LaunchRule::kE4, str("the environment variable GPU_NUM is '", *gpus, "', but ",
                                      hosts, "; correct the one that is wrong"));
  }
  if (!launch.nodes) return;
  if (!launch.hosts.empty() && launch.hosts.size() != static_cast<size_t>(*launch.nodes)) {
    reading.fail(LaunchRule::kE4,
                 str("the environment variable ", reading.originOf("nodes"), " is '", *launch.nodes,
                     "', but ", list, " names ", launch.hosts.size(), " hosts (",
                     hostsText(launch.hosts), "); correct the one that is wrong"));
  }
  if (!perNode) return;
  const int64_t expected = int64_t{*launch.nodes} * *perNode;
  const std::string product = str(*launch.nodes, " nodes (", reading.originOf("nodes"), ") with ",
                                  *perNode, " GPUs each (GPU_NUM_PER_NODE) have ", expected);
  if (gpus && *gpus != expected) {
    reading.fail(LaunchRule::kE4, str("the environment variable GPU_NUM is '", *gpus, "', but ",
                                      product, "; correct the one that is wrong"));
  }
  if (!launch.hosts.empty() && sumOfSlots(launch.hosts) != expected) {
    reading.fail(LaunchRule::kE4,
                 str(hosts, " GPUs, but ", product, "; correct the one that is wrong"));
  }
}

}  // namespace taco
