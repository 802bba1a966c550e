// The rows that describe a place in somebody else's cluster: TensorFlow's, Ray's.
#include <algorithm>
#include <optional>
#include <string>

#include "csrc/base/format.h"
#include "launch/address.h"
#include "launch/master.h"
#include "launch/node_list.h"
#include "launch/rows.h"
#include "launch/text.h"
#include "launch/tf_config.h"

namespace taco {

void extractTfConfig(Reading& reading, Launch& launch) {
  reading.requireAll({"TF_CONFIG"});
  const auto cluster = parseTfConfig(*reading.text("TF_CONFIG"));
  if (!cluster) {
    reading.fail(LaunchRule::kE1,
                 "the environment variable TF_CONFIG has no cluster; it must have "
                 "cluster.worker, cluster.ps and task");
  }
  const std::vector<TfTask>& tasks = cluster->tasks;
  const TfTask& own = tasks[cluster->rank];
  launch.rank = cluster->rank;
  launch.worldSize = static_cast<int>(tasks.size());
  launch.role = own.role;
  launch.roleIndex = own.index;
  // Tasks on one host are told apart by their port.
  int localRank = 0;
  int localWorldSize = 0;
  for (size_t rank = 0; rank < tasks.size(); ++rank) {
    const std::string& host = tasks[rank].address.host;
    if (host == own.address.host) {
      if (static_cast<int>(rank) < cluster->rank) ++localRank;
      ++localWorldSize;
    }
    const auto found = std::find_if(launch.hosts.begin(), launch.hosts.end(),
                                    [&](const HostSlots& one) { return one.host == host; });
    if (found == launch.hosts.end()) {
      launch.hosts.push_back({host, 1});
    } else {
      ++found->slots;
    }
  }
  launch.localRank = localRank;
  launch.localWorldSize = localWorldSize;
  reading.record("rank", std::to_string(*launch.rank), "TF_CONFIG");
  reading.record("world_size", std::to_string(*launch.worldSize), "TF_CONFIG");
  reading.record("local_rank", std::to_string(localRank), "TF_CONFIG");
  reading.record("local_world_size", std::to_string(localWorldSize), "TF_CONFIG");
  reading.record("role", str(own.role, " ", own.index), "TF_CONFIG");
  reading.record("hosts", hostsText(launch.hosts), "TF_CONFIG");
  takeMaster(reading, launch, "", "");  // the arguments alone; without them it is rank 0
  const Address& master = tasks.front().address;
  if (!launch.masterAddress) {
    launch.masterAddress = master.host;
    reading.record("master_address", master.host, "TF_CONFIG");
  }
  if (!launch.masterPort && !master.port) {
    reading.fail(LaunchRule::kE1, str("the environment variable TF_CONFIG gives ",
                                      tasks.front().role, " 0 the address ", inQuotes(master.host),
                                      " without a port; it is the master and needs host:port"));
  }
  if (!launch.masterPort) {
    launch.masterPort = master.port;
    reading.record("master_port", std::to_string(*master.port), "TF_CONFIG");
  }
  reading.note(str("ranks of ", cluster->summary(), ": chief and workers first, then ps"));
}

void extractTiRay(Reading& reading, Launch& launch) {
  reading.requireAll({"HEAD_ADDR", "RANK"});
  const Address head =
      parseAddress(*reading.text("HEAD_ADDR"), "the environment variable HEAD_ADDR");
  launch.headAddress = head.host;
  launch.headPort = head.port;
  reading.record("head_address", head.host, "HEAD_ADDR");
  if (const auto port = reading.text("HEAD_PORT")) {
    launch.headPort = parsePort(*port, "the environment variable HEAD_PORT");
    reading.record("head_port", *port, "HEAD_PORT");
    if (head.port && *head.port != *launch.headPort) {
      reading.fail(LaunchRule::kE6,
                   str("the environment variable HEAD_ADDR has the port ", *head.port,
                       " and HEAD_PORT is '", *launch.headPort, "'; leave one of the two"));
    }
  }
  launch.nodeRank = reading.take("node_rank", "RANK", 0);
  reading.note(str("RANK is the index of this pod in the Ray cluster",
                   *launch.nodeRank == 0 ? " (the head)" : "",
                   ", never a process's rank: Ray Train gives the workers theirs"));
}

}  // namespace taco
