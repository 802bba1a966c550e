// The TI platform's MPI mode, before mpirun: hosts and slots to start it with.
#include <algorithm>
#include <optional>
#include <string>

#include "csrc/base/format.h"
#include "launch/address.h"
#include "launch/gpu_counts.h"
#include "launch/hostfile.h"
#include "launch/master.h"
#include "launch/node_list.h"
#include "launch/rows.h"
#include "launch/text.h"

namespace taco {
namespace {

// The index in `hosts` that is this host, by name (also without its domain) or address.
std::optional<int> ownIndex(const Reading& reading, const std::vector<HostSlots>& hosts) {
  if (!reading.seams().ownNames) return std::nullopt;
  const auto names = reading.seams().ownNames();
  const auto isSame = [](const std::string& a, const std::string& b) {
    // "node-0.svc.local" is "node-0", but 10.0.0.1 is not 10.1.2.3.
    const bool isNumeric = a.find_first_not_of("0123456789.") == std::string::npos;
    return a == b || (!isNumeric && a.substr(0, a.find('.')) == b.substr(0, b.find('.')));
  };
  for (const bool isExact : {true, false}) {
    for (size_t i = 0; i < hosts.size(); ++i) {
      const std::string& host = hosts[i].host;
      const bool isOwn = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
        return isExact ? host == name : isSame(host, name);
      });
      if (isOwn || (isExact && isLoopback(host))) return static_cast<int>(i);
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<HostSlots> takeHostfile(Reading& reading, const char* field) {
  for (const char* const variable :
       {"OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile"}) {
    const auto path = reading.text(variable);
    if (!path || *path == "none") continue;  // OpenMPI's word for "read no file"
    const auto text = reading.seams().readFile ? reading.seams().readFile(*path) : std::nullopt;
    if (!text) {
      reading.fail(
          LaunchRule::kE1,
          str("the environment variable ", variable, " is ", inQuotes(*path),
              ", but that file cannot be read here; correct the path or unset the variable"));
    }
    auto hosts = parseHostfile(*text, str("the hostfile ", inQuotes(*path), " (", variable, ")"),
                               reading.warnings);
    reading.record(field, *path, variable);
    return hosts;
  }
  return {};
}

namespace {

// The hosts: those of the platform's list, whose addresses need no name server, else the
// hostfile's. Where both are there they must agree.
void takeTiHosts(Reading& reading, Launch& launch) {
  const auto text = reading.text("NODE_IP_SLOT_LIST");
  if (!text) {
    launch.hosts = takeHostfile(reading, "hosts");
    return;
  }
  launch.hosts =
      parseNodeList(*text, "the environment variable NODE_IP_SLOT_LIST", reading.warnings);
  reading.record("hosts", *text, "NODE_IP_SLOT_LIST");
  std::vector<HostSlots> file;
  try {
    file = takeHostfile(reading, "hostfile");
  } catch (const LaunchError& error) {
    // Only the host that runs mpirun need have it.
    reading.note(str("the hostfile is of no use here: ", error.what()));
  }
  if (file.empty()) return;
  if (sumOfSlots(file) != sumOfSlots(launch.hosts) || file.size() != launch.hosts.size()) {
    reading.fail(LaunchRule::kE4,
                 str("the environment variable NODE_IP_SLOT_LIST has ", sumOfSlots(launch.hosts),
                     " slots on ", launch.hosts.size(), " hosts (", hostsText(launch.hosts),
                     "), but ", reading.originOf("hostfile"), " has ", sumOfSlots(file), " on ",
                     file.size(), " (", hostsText(file), "); correct the one that is wrong"));
  }
}

}  // namespace

void extractTiMpi(Reading& reading, Launch& launch) {
  takeTiHosts(reading, launch);
  if (launch.hosts.empty()) {
    reading.fail(LaunchRule::kE1,
                 "none of the environment variables OMPI_MCA_orte_default_hostfile, "
                 "PRTE_MCA_prte_default_hostfile and NODE_IP_SLOT_LIST names hosts: they "
                 "are missing; set one of them");
  }
  const std::optional<int> gpus = reading.take("gpus", "GPU_NUM", 0, LaunchRule::kE4);
  const std::optional<int> perNode =
      reading.take("gpus_per_node", "GPU_NUM_PER_NODE", 0, LaunchRule::kE4);
  launch.nodes = static_cast<int>(launch.hosts.size());
  reading.record("nodes", std::to_string(*launch.nodes), reading.originOf("hosts"));
  launch.worldSize = gpus && *gpus > 0 ? *gpus : sumOfSlots(launch.hosts);
  reading.record("world_size", std::to_string(*launch.worldSize),
                 gpus && *gpus > 0 ? "GPU_NUM" : reading.originOf("hosts"));
  if (const auto np = reading.argument("np")) {
    launch.worldSize = parseInteger(*np, "the argument np");
    reading.record("world_size", *np, "the argument np");
    if (*launch.worldSize < 1) {
      reading.fail(LaunchRule::kE2, str("the argument np is '", *np, "', but must be at least 1"));
    }
  }
  if (*launch.worldSize < 1) {
    reading.fail(LaunchRule::kE2,
                 str("there are no processes to start: ", reading.originOf("hosts"), " has ",
                     sumOfSlots(launch.hosts), " slots (", hostsText(launch.hosts),
                     "); give each host at least one"));
  }
  requireSlots(launch.hosts, reading.originOf("hosts"), *launch.worldSize,
               reading.argument("np") ? "the argument np" : reading.originOf("gpus"));
  const bool isRegular =
      std::all_of(launch.hosts.begin(), launch.hosts.end(),
                  [&](const HostSlots& host) { return host.slots == launch.hosts.front().slots; });
  if (isRegular) launch.processesPerNode = launch.hosts.front().slots;
  // Hostfiles may mix nodes of 8 and 4; the platform's numbers are of nodes that are alike.
  if (!reading.argument("np")) {
    checkGpuCounts(reading, launch,
                   {gpus, isRegular && gpus ? perNode : std::nullopt, reading.originOf("hosts")});
  }
  launch.nodeRank = ownIndex(reading, launch.hosts);
  if (launch.nodeRank) {
    reading.record("node_rank", std::to_string(*launch.nodeRank), "the name of this host");
  } else if (const auto index = reading.take("node_rank", "INDEX", 0, LaunchRule::kE4)) {
    if (*index >= *launch.nodes) {
      reading.fail(LaunchRule::kE4,
                   str("the environment variable INDEX is '", *index, "', but ",
                       reading.originOf("hosts"), " names ", *launch.nodes, " hosts (",
                       hostsText(launch.hosts), "); INDEX must be from 0 to ", *launch.nodes - 1));
    }
    launch.nodeRank = index;
  } else {
    reading.note("none of the hosts is this one, by name or address");
  }
  takeMaster(reading, launch, "MASTER_ADDR", "MASTER_PORT");
}

}  // namespace taco
