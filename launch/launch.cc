#include "launch/launch.h"

#include "csrc/base/format.h"
#include "launch/node_list.h"

namespace taco {

const char* name(LaunchLevel level) {
  switch (level) {
    case LaunchLevel::kProcess:
      return "process";
    case LaunchLevel::kNode:
      return "node";
    case LaunchLevel::kRole:
      return "role";
    case LaunchLevel::kLauncher:
      return "launcher";
  }
  return "";
}

bool hasSeveralNodes(const Launch& launch) {
  if (launch.nodes) return *launch.nodes > 1;
  return launch.worldSize && launch.localWorldSize && *launch.localWorldSize < *launch.worldSize;
}

Launch asProcess(const Launch& launch) {
  const auto refuse = [&](const std::string& what, const std::string& advice) {
    throw LaunchError(LaunchRule::kLevel,
                      str("the environment describes ", what, " [launch row ", launch.row,
                          "], not one "
                          "process of the job; ",
                          advice, "; TACO_LAUNCHER chooses another row"));
  };
  switch (launch.level) {
    case LaunchLevel::kProcess:
    case LaunchLevel::kRole:
      return launch;
    case LaunchLevel::kLauncher:
      refuse("a place to start mpirun from",
             "start the script with `taco run script.py`, or with mpirun itself");
      break;
    case LaunchLevel::kNode:
      break;
  }
  if (launch.row == "ti-ray") {
    refuse(str("node ", *launch.nodeRank, " of a Ray cluster"),
           "run the training through Ray Train with torch_taco.ray.TacoConfig, which gives every "
           "worker its rank");
  }
  const std::string which =
      str("node ", launch.nodeRank ? std::to_string(*launch.nodeRank) : "?", " of ",
          launch.nodes ? std::to_string(*launch.nodes) : "a changing number", " with ",
          launch.processesPerNode ? std::to_string(*launch.processesPerNode)
                                  : launch.processesPerNodeWord,
          " processes");
  if (launch.processesPerNode != 1 || !launch.nodeRank || !launch.nodes) {
    refuse(which, "start the script with `taco run script.py` on every node");
  }
  Launch process = launch;
  process.level = LaunchLevel::kProcess;
  process.rank = launch.nodeRank;
  process.worldSize = launch.nodes;
  process.localRank = 0;
  process.localWorldSize = 1;
  process.notes.push_back("one process a node: the node is the process");
  return process;
}

Variables torchEnvironment(const Launch& launch, const Master& master) {
  const Launch process = asProcess(launch);
  Variables environment = {{"RANK", std::to_string(*process.rank)},
                           {"WORLD_SIZE", std::to_string(*process.worldSize)},
                           {"MASTER_ADDR", master.address},
                           {"MASTER_PORT", std::to_string(master.port)}};
  if (process.localRank) environment["LOCAL_RANK"] = std::to_string(*process.localRank);
  if (process.localWorldSize) {
    environment["LOCAL_WORLD_SIZE"] = std::to_string(*process.localWorldSize);
  }
  return environment;
}

void requireSlots(const Launch& launch, int processes) {
  if (launch.hosts.empty()) return;
  std::string origin = "the list of hosts";
  for (const LaunchValue& value : launch.values) {
    if (value.field == "hosts") origin = value.origin;
  }
  requireSlots(launch.hosts, origin, processes, "");
}

}  // namespace taco
