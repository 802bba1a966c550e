// The rows that describe a node, which starts processes of its own: Kubeflow, and the TI platform's
// DDP mode.
#include <cstdint>
#include <optional>
#include <string>

#include "csrc/base/format.h"
#include "launch/address.h"
#include "launch/gpu_counts.h"
#include "launch/master.h"
#include "launch/node_list.h"
#include "launch/rows.h"
#include "launch/text.h"
#include "launch/visible_gpus.h"

namespace taco {
namespace {

// torchrun's words for "as many as there are devices".
bool isDeviceWord(const std::string& text) {
  return text == "auto" || text == "gpu" || text == "cpu" || text == "xpu";
}

// INDEX is this node's place in NODE_LIST.
void checkIndex(Reading& reading, const Launch& launch) {
  const std::optional<int> index = reading.number("INDEX");
  if (!index) return;
  const int64_t nodes = launch.hosts.empty() ? launch.nodes.value_or(INT32_MAX)
                                             : static_cast<int64_t>(launch.hosts.size());
  if (*index < 0 || *index >= nodes) {
    reading.fail(LaunchRule::kE4,
                 str("the environment variable INDEX is '", *index, "', but ",
                     launch.hosts.empty() ? reading.originOf("nodes") : "NODE_LIST", " has ", nodes,
                     nodes == 1 ? " node" : " nodes", "; INDEX must be from 0 to ", nodes - 1));
  }
  reading.record("index", std::to_string(*index), "INDEX");
  if (launch.nodeRank && *index != *launch.nodeRank) {
    reading.warn(str("INDEX is ", *index, " and ", reading.originOf("node_rank"), " is ",
                     *launch.nodeRank, "; ", reading.originOf("node_rank"), " counts"));
  }
}

// As many processes as GPU_NUM_PER_NODE says, but no more than CUDA_VISIBLE_DEVICES leaves.
void takeProcesses(Reading& reading, Launch& launch) {
  const std::optional<int> perNode =
      reading.take("gpus_per_node", "GPU_NUM_PER_NODE", 0, LaunchRule::kE4);
  if (!perNode) return;
  launch.processesPerNode = *perNode;
  if (*perNode == 0) {
    launch.processesPerNode = 1;
    reading.note("GPU_NUM_PER_NODE is 0: one process a node, without a GPU");
    return;
  }
  const std::optional<int> visible = gpusInVisibleDevices(reading);
  if (!visible || *visible >= *perNode) return;
  const std::string devices = inQuotes(*reading.text("CUDA_VISIBLE_DEVICES"));
  if (*visible == 0) {
    reading.warn(str("CUDA_VISIBLE_DEVICES is ", devices, ", which hides every GPU: the ", *perNode,
                     " processes of this node (GPU_NUM_PER_NODE) run without one"));
    return;
  }
  launch.processesPerNode = *visible;
  reading.record("processes_per_node", std::to_string(*visible), "CUDA_VISIBLE_DEVICES");
  reading.warn(
      str("CUDA_VISIBLE_DEVICES is ", devices, " and leaves ", *visible, " of the ", *perNode,
          " GPUs that GPU_NUM_PER_NODE says: ", *visible, *visible == 1 ? " process" : " processes",
          " on this node; give the number of processes (--nproc) to have more of them share "
          "these GPUs"));
}

void takeNodeList(Reading& reading, Launch& launch) {
  const auto text = reading.text("NODE_LIST");
  if (!text) return;
  launch.hosts = parseNodeList(*text, "the environment variable NODE_LIST", reading.warnings);
  reading.record("hosts", *text, "NODE_LIST");
}

void takePetNodes(Reading& reading, Launch& launch) {
  const auto text = reading.text("PET_NNODES");
  if (!text) {
    launch.nodes = 1;
    reading.note("PET_NNODES is not set: 1 node, as torchrun takes it");
    return;
  }
  const size_t colon = text->find(':');
  const std::string origin = "the environment variable PET_NNODES";
  const int least = parseInteger(text->substr(0, colon), origin);
  const int most =
      colon == std::string::npos ? least : parseInteger(text->substr(colon + 1), origin);
  if (least < 1 || most < least) {
    reading.fail(LaunchRule::kE2, str(origin, " is ", inQuotes(*text),
                                      ", but must be a number of nodes from 1, or least:most"));
  }
  reading.record("nodes", *text, "PET_NNODES");
  if (most == least) {
    launch.nodes = least;
  } else {
    reading.note(str("PET_NNODES is ", inQuotes(*text),
                     ": the number of nodes may change, torchrun's rendezvous decides"));
  }
}

void takePetProcesses(Reading& reading, Launch& launch) {
  const auto text = reading.text("PET_NPROC_PER_NODE");
  if (!text) {
    launch.processesPerNode = 1;
    reading.note("PET_NPROC_PER_NODE is not set: 1 process a node, as torchrun takes it");
    return;
  }
  if (isDeviceWord(*text)) {
    launch.processesPerNodeWord = *text;
    reading.record("processes_per_node", *text, "PET_NPROC_PER_NODE");
    return;
  }
  if (text->find_first_not_of("-0123456789") != std::string::npos) {
    reading.fail(LaunchRule::kE1,
                 str("the environment variable PET_NPROC_PER_NODE is ", inQuotes(*text),
                     ", but must be a whole number, or auto, gpu, cpu or xpu"));
  }
  launch.processesPerNode = reading.take("processes_per_node", "PET_NPROC_PER_NODE", 1);
}

}  // namespace

void extractKubeflow(Reading& reading, Launch& launch) {
  if (!reading.has("PET_NNODES") && !reading.has("PET_NODE_RANK")) {
    reading.requireAll({"PET_NNODES", "PET_NODE_RANK"});
  }
  takePetNodes(reading, launch);
  takePetProcesses(reading, launch);
  launch.nodeRank = reading.take("node_rank", "PET_NODE_RANK", 0);
  const auto endpoint = reading.text("PET_RDZV_ENDPOINT");
  if (reading.argument("master_addr") || reading.has("PET_MASTER_ADDR") || !endpoint) {
    // The operator sets both spellings; without its own, the common one is better than none.
    const bool hasPet = reading.has("PET_MASTER_ADDR") || reading.has("PET_MASTER_PORT");
    takeMaster(reading, launch, hasPet ? "PET_MASTER_ADDR" : "MASTER_ADDR",
               hasPet ? "PET_MASTER_PORT" : "MASTER_PORT");
  } else {
    const Address address = parseAddress(*endpoint, "the environment variable PET_RDZV_ENDPOINT");
    launch.masterAddress = address.host;
    launch.masterPort = address.port;
    reading.record("master_address", address.host, "PET_RDZV_ENDPOINT");
    if (address.port) {
      reading.record("master_port", std::to_string(*address.port), "PET_RDZV_ENDPOINT");
    }
  }
  if (launch.nodes > 1 && !launch.nodeRank && !endpoint && !reading.has("PET_RDZV_BACKEND")) {
    reading.fail(LaunchRule::kE1,
                 str("the environment variable PET_NODE_RANK is missing, though PET_NNODES is '",
                     *launch.nodes, "'; set both, or a rendezvous with PET_RDZV_ENDPOINT"));
  }
  // The operator has written both meanings of WORLD_SIZE, in different versions.
  const std::optional<int> world = reading.number("WORLD_SIZE");
  if (world && launch.nodes && launch.processesPerNode) {
    const int64_t processes = int64_t{*launch.nodes} * *launch.processesPerNode;
    if (*world != *launch.nodes && *world != processes) {
      reading.fail(LaunchRule::kE4,
                   str("the environment variable WORLD_SIZE is '", *world, "', but ", *launch.nodes,
                       " nodes (PET_NNODES) with ", *launch.processesPerNode,
                       " processes each (PET_NPROC_PER_NODE) make ", processes,
                       "; correct the one that is wrong"));
    }
  }
  const std::optional<int> rank = reading.number("RANK");
  if (rank && launch.nodeRank && *rank != *launch.nodeRank) {
    reading.warn(str("RANK is ", *rank, " and PET_NODE_RANK is ", *launch.nodeRank,
                     "; PET_NODE_RANK counts"));
  }
}

void extractTiDdp(Reading& reading, Launch& launch) {
  reading.requireAll({"RANK", "WORLD_SIZE", "GPU_NUM_PER_NODE"});
  launch.nodes = reading.take("nodes", "WORLD_SIZE", 1);
  launch.nodeRank = reading.take("node_rank", "RANK", 0);
  takeProcesses(reading, launch);
  takeNodeList(reading, launch);
  const std::optional<int> gpus = reading.take("gpus", "GPU_NUM", 0, LaunchRule::kE4);
  checkGpuCounts(reading, launch, {gpus, reading.number("GPU_NUM_PER_NODE"), "NODE_LIST"});
  checkIndex(reading, launch);
  takeMaster(reading, launch, "MASTER_ADDR", "MASTER_PORT");
}

}  // namespace taco
