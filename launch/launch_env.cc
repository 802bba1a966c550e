#include "launch/launch_env.h"

#include <algorithm>
#include <map>

#include "csrc/base/format.h"
#include "launch/known_variables.h"
#include "launch/master.h"
#include "launch/reading.h"
#include "launch/rows.h"
#include "launch/text.h"
#include "launch/tf_config.h"

namespace taco {
namespace {

// --- When a row matches. A variable that only this row has is enough: what else is missing is then
// --- an error (E1), rather than a reason to look further.

bool isExplicit(const Reading& r) {
  return r.argument("rank") || r.argument("world_size") || r.argument("local_rank") ||
         r.argument("local_world_size") || r.has("TACO_RANK") || r.has("TACO_WORLD_SIZE") ||
         r.has("TACO_LOCAL_RANK") || r.has("TACO_LOCAL_WORLD_SIZE");
}
bool isTorchrun(const Reading& r) { return r.has("TORCHELASTIC_RUN_ID") && r.has("LOCAL_RANK"); }
bool isHorovod(const Reading& r) { return r.has("HOROVOD_RANK") || r.has("HOROVOD_SIZE"); }
bool isOpenMpi(const Reading& r) {
  return r.has("OMPI_COMM_WORLD_RANK") || r.has("OMPI_COMM_WORLD_SIZE");
}
bool isSlurm(const Reading& r) { return r.has("SLURM_STEP_ID") || r.has("SLURM_STEP_NUM_TASKS"); }
bool isMpich(const Reading& r) { return r.has("PMI_RANK") || r.has("PMI_SIZE"); }
bool isTorch(const Reading& r) {
  return r.has("RANK") && r.has("WORLD_SIZE") && r.has("LOCAL_RANK");
}
bool isKubeflow(const Reading& r) {
  return (r.has("PET_NNODES") || r.has("PET_NODE_RANK")) && !r.has("LOCAL_RANK");
}
bool isTiDdp(const Reading& r) {
  if (!r.has("RANK") || !r.has("WORLD_SIZE") || r.has("LOCAL_RANK")) return false;
  // With the platform's other variables, WORLD_SIZE counts nodes as well, and what is missing is
  // GPU_NUM_PER_NODE; unless they are those of its PS-Worker or Ray mode.
  const bool hasOthers = r.has("NODE_LIST") || r.has("GPU_NUM");
  return r.has("GPU_NUM_PER_NODE") || (hasOthers && !r.has("TF_CONFIG") && !r.has("HEAD_ADDR"));
}
bool isTfConfig(const Reading& r) {
  const auto text = r.text("TF_CONFIG");
  if (!text) return false;
  try {
    return parseTfConfig(*text)
        .has_value();  // a single TensorFlow process has one without a cluster
  } catch (const LaunchError&) {
    return true;  // extractTfConfig tells what is wrong
  }
}
bool isTiRay(const Reading& r) {
  return r.has("HEAD_ADDR") && r.has("RANK") && !r.has("WORLD_SIZE");
}
bool isRankWorld(const Reading& r) {
  return r.has("RANK") || r.has("WORLD_SIZE") || r.has("LOCAL_RANK");
}
bool isTiMpi(const Reading& r) {
  return r.has("OMPI_MCA_orte_default_hostfile") || r.has("PRTE_MCA_prte_default_hostfile") ||
         r.has("NODE_IP_SLOT_LIST");
}
bool isAnything(const Reading&) { return true; }

// --- Checks on what a row has extracted.

void refuseRanksOutside(const Reading& reading, const Launch& launch) {
  const auto refuse = [&](const char* field, int value, const char* sizeField, int size) {
    reading.fail(LaunchRule::kE2, str(reading.originOf(field), " is '", value, "', but ",
                                      reading.originOf(sizeField), " is '", size,
                                      "'; it must be from 0 to ", size - 1));
  };
  if (launch.rank && launch.worldSize && *launch.rank >= *launch.worldSize) {
    refuse("rank", *launch.rank, "world_size", *launch.worldSize);
  }
  if (launch.localRank && launch.localWorldSize && *launch.localRank >= *launch.localWorldSize) {
    refuse("local_rank", *launch.localRank, "local_world_size", *launch.localWorldSize);
  }
  if (launch.localRank && launch.worldSize && *launch.localRank >= *launch.worldSize) {
    refuse("local_rank", *launch.localRank, "world_size", *launch.worldSize);
  }
  if (launch.nodeRank && launch.nodes && *launch.nodeRank >= *launch.nodes) {
    refuse("node_rank", *launch.nodeRank, "nodes", *launch.nodes);
  }
  if (launch.localWorldSize && launch.worldSize && *launch.localWorldSize > *launch.worldSize) {
    reading.fail(LaunchRule::kE2,
                 str(reading.originOf("local_world_size"), " is '", *launch.localWorldSize,
                     "', more than the whole job has: ", reading.originOf("world_size"), " is '",
                     *launch.worldSize, "'; correct the one that is wrong"));
  }
  if (launch.nodes && launch.worldSize && launch.level == LaunchLevel::kProcess &&
      *launch.nodes > *launch.worldSize) {
    reading.fail(LaunchRule::kE2,
                 str(reading.originOf("nodes"), " is '", *launch.nodes,
                     "', more nodes than processes: ", reading.originOf("world_size"), " is '",
                     *launch.worldSize, "'; correct the one that is wrong"));
  }
}

// Gloo takes names only; with NCCL's pattern it stops with an error of its own that nobody
// understands.
void refusePatternForGloo(const Reading& reading) {
  const auto name = reading.text("GLOO_SOCKET_IFNAME");
  if (!name || name->find_first_of("^=") == std::string::npos) return;
  reading.fail(
      LaunchRule::kE1,
      str("the environment variable GLOO_SOCKET_IFNAME is ", inQuotes(*name),
          ", but gloo wants the name of an interface, such as eth0, not a pattern (^ and = "
          "are NCCL's, for NCCL_SOCKET_IFNAME); set a name or unset it"));
}

void noteInterfaces(Reading& reading) {
  std::vector<std::string> set;
  for (const char* const variable :
       {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TACO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"}) {
    if (const auto value = reading.text(variable)) {
      set.push_back(str(variable, "=", *value));
    }
  }
  if (set.empty()) return;
  reading.note(str(listed(set), set.size() > 1 ? " stay as they are" : " stays as it is"));
}

const LaunchRow& chooseRow(Reading& reading) {
  const auto argument = reading.argument("launcher");
  const auto forced = argument ? argument : reading.text("TACO_LAUNCHER");
  if (!forced) {
    const auto& rows = launchTable();
    return *std::find_if(rows.begin(), rows.end(),
                         [&](const LaunchRow& row) { return row.matches(reading); });
  }
  const std::string origin =
      argument ? "the argument launcher" : "the environment variable TACO_LAUNCHER";
  std::vector<std::string> names;
  for (const LaunchRow& row : launchTable()) {
    if (*forced == row.name) {
      reading.isForced = true;
      reading.record("launcher", *forced, argument ? origin : "TACO_LAUNCHER");
      return row;
    }
    names.push_back(row.name);
  }
  reading.fail(LaunchRule::kE1, str(origin, " is ", inQuotes(*forced), ", but must be one of ",
                                    listed(names), "; correct or unset it"));
}

}  // namespace

const std::vector<LaunchRow>& launchTable() {
  using enum LaunchLevel;
  static const std::vector<LaunchRow> rows = {
      {"explicit", "rank and world_size as arguments, or TACO_RANK + TACO_WORLD_SIZE", kProcess,
       "as given; TACO_LOCAL_RANK and TACO_LOCAL_WORLD_SIZE where set", isExplicit,
       extractExplicit},
      {"torchrun", "TORCHELASTIC_RUN_ID + LOCAL_RANK", kProcess,
       "RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE; the node is GROUP_RANK", isTorchrun,
       extractTorchrun},
      {"horovod", "HOROVOD_RANK + HOROVOD_SIZE", kProcess,
       "HOROVOD_RANK, HOROVOD_SIZE, HOROVOD_LOCAL_*; the node is HOROVOD_CROSS_RANK", isHorovod,
       extractHorovod},
      {"openmpi", "OMPI_COMM_WORLD_RANK + OMPI_COMM_WORLD_SIZE", kProcess,
       "OMPI_COMM_WORLD_*; RANK and WORLD_SIZE, which the TI platform leaves in the child, are "
       "ignored",
       isOpenMpi, extractOpenMpi},
      {"slurm", "SLURM_STEP_ID + SLURM_PROCID + SLURM_STEP_NUM_TASKS", kProcess,
       "SLURM_PROCID of SLURM_STEP_NUM_TASKS, SLURM_LOCALID; the node is SLURM_NODEID", isSlurm,
       extractSlurm},
      {"mpich", "PMI_RANK + PMI_SIZE", kProcess,
       "PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS", isMpich, extractMpich},
      {"torch", "RANK + WORLD_SIZE + LOCAL_RANK", kProcess,
       "as they say: Ray Train, torch.distributed.launch, accelerate", isTorch, extractTorch},
      {"kubeflow", "PET_NNODES or PET_NODE_RANK, without LOCAL_RANK", kNode,
       "PET_* only; WORLD_SIZE may be the nodes, or nodes x processes", isKubeflow,
       extractKubeflow},
      {"ti-ddp", "RANK + WORLD_SIZE + GPU_NUM_PER_NODE, without LOCAL_RANK", kNode,
       "the TI platform's DDP mode: WORLD_SIZE counts nodes, RANK is this node, GPU_NUM_PER_NODE "
       "processes each",
       isTiDdp, extractTiDdp},
      {"tf-config", "TF_CONFIG", kRole,
       "the TI platform's PS-Worker mode: chief and workers first, then ps; rank 0 is the master",
       isTfConfig, extractTfConfig},
      {"ti-ray", "HEAD_ADDR + RANK, without WORLD_SIZE", kNode,
       "the TI platform's Ray mode: RANK is the pod's index, 0 the head, never a process's rank",
       isTiRay, extractTiRay},
      {"rank-world", "RANK + WORLD_SIZE", kProcess,
       "as torch takes them; a warning where several GPUs are visible", isRankWorld,
       extractRankWorld},
      {"ti-mpi",
       "OMPI_MCA_orte_default_hostfile, PRTE_MCA_prte_default_hostfile or NODE_IP_SLOT_LIST",
       kLauncher, "the TI platform's MPI mode before mpirun: what `taco run` starts mpirun with",
       isTiMpi, extractTiMpi},
      {"single", "none of the above", kProcess, "rank 0 of 1", isAnything, extractSingle},
  };
  return rows;
}

std::string launchTableMarkdown() {
  std::string text = "| # | row | detected when | level | meaning |\n|---|---|---|---|---|\n";
  int number = 0;
  for (const LaunchRow& row : launchTable()) {
    text += str("| ", ++number, " | `", row.name, "` | ", row.detectedWhen, " | ", name(row.level),
                " | ", row.meaning, " |\n");
  }
  return text;
}

Launch readLaunch(const Variables& variables, const Arguments& arguments,
                  const LaunchSeams& seams) {
  Reading reading(variables, arguments, seams);
  refusePatternForGloo(reading);
  const LaunchRow& row = chooseRow(reading);
  reading.row = &row;
  Launch launch;
  launch.row = row.name;
  launch.level = row.level;
  row.extract(reading, launch);
  refuseRanksOutside(reading, launch);
  refuseLoopbackMaster(reading, launch);
  noteInterfaces(reading);
  launch.ignored = ignoredVariables(reading);
  launch.values = std::move(reading.values);
  launch.warnings = std::move(reading.warnings);
  launch.notes = std::move(reading.notes);
  return launch;
}

}  // namespace taco
