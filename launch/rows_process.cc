// The rows that describe one process of the job.
#include <cstdint>
#include <optional>
#include <string>

#include "csrc/base/format.h"
#include "launch/master.h"
#include "launch/node_list.h"
#include "launch/rows.h"
#include "launch/slurm.h"
#include "launch/text.h"
#include "launch/visible_gpus.h"

namespace taco {
namespace {

// The variables of a launcher that says rank, size and their local counterparts.
struct Names {
  const char* rank;
  const char* worldSize;
  const char* localRank;
  const char* localWorldSize = nullptr;  // where one variable says it
};

void takeRanks(Reading& reading, Launch& launch, const Names& names) {
  reading.requireAll({names.rank, names.worldSize});
  launch.worldSize = reading.take("world_size", names.worldSize, 1);
  launch.rank = reading.take("rank", names.rank, 0);
  launch.localRank = reading.take("local_rank", names.localRank, 0);
  if (names.localWorldSize != nullptr) {
    launch.localWorldSize = reading.take("local_world_size", names.localWorldSize, 1);
  }
}

// All processes on this host: then, and only then, the local size says how many nodes there are.
void setOneNodeWhereAllAreLocal(Launch& launch) {
  if (launch.localWorldSize && launch.localWorldSize == launch.worldSize) {
    launch.nodes = 1;
    launch.nodeRank = 0;
  }
}

// E5: a torchrun that an MPI launcher started is one of as many agents as the MPI job has
// processes. Other sizes mean that one of the two is a leftover, or that each MPI process runs a
// job of its own.
void refuseForeignMpi(const Reading& reading, const Launch& launch, const std::string& mpiSize,
                      const std::string& mpiRank, const std::string& row) {
  if (!reading.has(mpiSize) || !reading.has(mpiRank)) return;
  const int size = *reading.number(mpiSize);
  std::optional<int> agents = launch.nodes;
  if (!agents && launch.localWorldSize && *launch.worldSize % *launch.localWorldSize == 0) {
    agents = *launch.worldSize / *launch.localWorldSize;
  }
  if (!agents || size == *agents) return;
  reading.fail(
      LaunchRule::kE5,
      str("torchrun's variables say ", *agents, *agents == 1 ? " node" : " nodes", " (WORLD_SIZE '",
          *launch.worldSize, "', ", launch.nodes ? "GROUP_WORLD_SIZE" : "LOCAL_WORLD_SIZE", " '",
          launch.nodes ? *launch.nodes : *launch.localWorldSize, "'), but ", mpiSize, " is '", size,
          "': one launcher runs inside the other and it is not clear whose ranks "
          "count; set TACO_LAUNCHER=torchrun or TACO_LAUNCHER=",
          row));
}

// E5: MPICH's mpiexec starts its daemons with srun, one a node, and the processes inherit the
// daemon's SLURM_PROCID. Under `srun --mpi=pmi2` the two say the same.
void refuseForeignPmi(const Reading& reading, const Launch& launch) {
  const std::optional<int> rank = reading.number("PMI_RANK");
  const std::optional<int> size = reading.number("PMI_SIZE");
  if (!rank || !size || (rank == launch.rank && size == launch.worldSize)) return;
  reading.fail(LaunchRule::kE5,
               str("Slurm's variables say ", *launch.rank, " of ", *launch.worldSize,
                   " (SLURM_PROCID, SLURM_STEP_NUM_TASKS), but PMI_RANK is '", *rank,
                   "' and PMI_SIZE is '", *size,
                   "': one launcher runs inside the other and it is not clear whose ranks count; "
                   "set TACO_LAUNCHER=mpich (mpiexec inside a Slurm job) or TACO_LAUNCHER=slurm"));
}

// The hosts of the step, for the master; a list that does not parse is an error, none is none.
void takeSlurmHosts(Reading& reading, Launch& launch) {
  const char* const list = "SLURM_STEP_NODELIST";
  const char* const tasks = "SLURM_STEP_TASKS_PER_NODE";
  std::vector<std::string> hosts;
  if (const auto text = reading.text(list)) hosts = parseSlurmNodes(*text, list);
  std::vector<int> counts;
  if (const auto text = reading.takeText("tasks_per_node", tasks)) {
    counts = parseSlurmTasks(*text, tasks);
    int64_t sum = 0;
    for (const int count : counts) sum += count;
    if (sum != *launch.worldSize) {
      reading.fail(LaunchRule::kE4,
                   str("the environment variable ", tasks, " (", inQuotes(*text), ") has ", sum,
                       " tasks, but SLURM_STEP_NUM_TASKS is '", *launch.worldSize,
                       "'; both must be of one step: start the script with srun itself"));
    }
    if (launch.nodes && counts.size() != static_cast<size_t>(*launch.nodes)) {
      reading.fail(LaunchRule::kE4,
                   str("the environment variable ", tasks, " (", inQuotes(*text), ") has ",
                       counts.size(), " nodes, but SLURM_STEP_NUM_NODES is '", *launch.nodes,
                       "'; both must be of one step: start the script with srun itself"));
    }
    if (launch.nodeRank && static_cast<size_t>(*launch.nodeRank) < counts.size()) {
      launch.localWorldSize = counts[*launch.nodeRank];
      reading.record("local_world_size", std::to_string(*launch.localWorldSize), tasks);
    }
    if (!launch.nodes) {
      launch.nodes = static_cast<int>(counts.size());
      reading.record("nodes", std::to_string(counts.size()), tasks);
    }
  }
  if (hosts.empty()) return;
  if (launch.nodes && hosts.size() != static_cast<size_t>(*launch.nodes)) {
    reading.fail(LaunchRule::kE4,
                 str("the environment variable ", list, " (", inQuotes(*reading.text(list)),
                     ") has ", hosts.size(), " hosts, but the step has ", *launch.nodes, " nodes (",
                     reading.originOf("nodes"),
                     "); both must be of one step: start the script with srun itself"));
  }
  for (size_t i = 0; i < hosts.size(); ++i) {
    launch.hosts.push_back({hosts[i], i < counts.size() ? counts[i] : 0});
  }
  reading.record("hosts", *reading.text(list), list);
}

// E1: the TI platform's variables of a job on several nodes, of which RANK and WORLD_SIZE were lost
// on the way (sudo, ssh, a script's env -i). To run alone would train on a part of the job,
// silently.
void refuseLostRanks(const Reading& reading) {
  if (reading.isForced) return;
  std::string evidence;
  // Others may call a variable of theirs NODE_LIST: it does not stand alone, and has this syntax.
  const bool isPlatforms = reading.has("INDEX") || reading.has("GPU_NUM") ||
                           reading.has("GPU_NUM_PER_NODE") || reading.has("MASTER_ADDR");
  const auto list = reading.text("NODE_LIST");
  if (list && isPlatforms) {
    try {
      std::vector<std::string> unheard;
      const size_t hosts = parseNodeList(*list, "NODE_LIST", unheard).size();
      if (hosts > 1) evidence = str("NODE_LIST (", inQuotes(*list), ") names ", hosts, " hosts");
    } catch (const LaunchError&) {
      // Not the platform's.
    }
  }
  if (evidence.empty() && reading.has("GPU_NUM") && reading.has("GPU_NUM_PER_NODE")) {
    const int gpus = *reading.number("GPU_NUM");
    const int perNode = *reading.number("GPU_NUM_PER_NODE");
    if (perNode > 0 && gpus > perNode) {
      evidence = str("GPU_NUM is '", gpus, "' and GPU_NUM_PER_NODE is '", perNode, "'");
    }
  }
  if (evidence.empty()) return;
  reading.fail(
      LaunchRule::kE1,
      str("the environment variables RANK and WORLD_SIZE are missing, though ", evidence,
          ": this is a node of a job of several, which the TI platform tells by these two; "
          "pass them on to this process, or set TACO_LAUNCHER=single to run it alone"));
}

}  // namespace

void extractExplicit(Reading& reading, Launch& launch) {
  const bool isByArguments = reading.argument("rank") || reading.argument("world_size") ||
                             reading.argument("local_rank") || reading.argument("local_world_size");
  if (!isByArguments) {
    takeRanks(reading, launch,
              {"TACO_RANK", "TACO_WORLD_SIZE", "TACO_LOCAL_RANK", "TACO_LOCAL_WORLD_SIZE"});
  } else {
    const auto take = [&](const char* key, int least) -> std::optional<int> {
      const auto text = reading.argument(key);
      if (!text) return std::nullopt;
      const std::string origin = str("the argument ", key);
      const int value = parseInteger(*text, origin);
      if (value < least) {
        reading.fail(LaunchRule::kE2,
                     str(origin, " is '", value, "', but must be at least ", least));
      }
      reading.record(key, *text, origin);
      return value;
    };
    launch.rank = take("rank", 0);
    launch.worldSize = take("world_size", 1);
    launch.localRank = take("local_rank", 0);
    launch.localWorldSize = take("local_world_size", 1);
    if (!launch.rank || !launch.worldSize) {
      reading.fail(LaunchRule::kE1, str("the argument ", launch.rank ? "world_size" : "rank",
                                        " is missing; give both rank and world_size, or neither"));
    }
  }
  setOneNodeWhereAllAreLocal(launch);
  takeMaster(reading, launch, "MASTER_ADDR", "MASTER_PORT");
}

void extractTorchrun(Reading& reading, Launch& launch) {
  reading.requireAll({"RANK", "WORLD_SIZE", "LOCAL_RANK"});
  takeRanks(reading, launch, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"});
  launch.nodes = reading.take("nodes", "GROUP_WORLD_SIZE", 1);
  launch.nodeRank = reading.take("node_rank", "GROUP_RANK", 0);
  reading.use("TORCHELASTIC_RUN_ID");
  if (!reading.isForced) {
    refuseForeignMpi(reading, launch, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "openmpi");
    refuseForeignMpi(reading, launch, "PMI_SIZE", "PMI_RANK", "mpich");
  }
  takeMaster(reading, launch, "MASTER_ADDR", "MASTER_PORT");
}

void extractHorovod(Reading& reading, Launch& launch) {
  takeRanks(reading, launch,
            {"HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"});
  // CROSS counts the hosts that have this local rank: all of them only where hosts are alike.
  const std::optional<int> hosts = reading.take("cross_size", "HOROVOD_CROSS_SIZE", 1);
  const std::optional<int> index = reading.take("node_rank", "HOROVOD_CROSS_RANK", 0);
  const bool isRegular = hosts && launch.localWorldSize &&
                         int64_t{*hosts} * *launch.localWorldSize == *launch.worldSize;
  launch.nodeRank = index;
  if (isRegular) launch.nodes = hosts;
  takeMaster(reading, launch, "MASTER_ADDR", "MASTER_PORT");
}

void extractOpenMpi(Reading& reading, Launch& launch) {
  takeRanks(reading, launch,
            {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
             "OMPI_COMM_WORLD_LOCAL_SIZE"});
  setOneNodeWhereAllAreLocal(launch);
  takeMaster(reading, launch, "MASTER_ADDR", "MASTER_PORT");
  if (launch.masterAddress || !hasSeveralNodes(launch)) return;
  reading.note("there is no MASTER_ADDR: rank 0 gives its address to the others through MPI");
  try {
    launch.hosts = takeHostfile(reading, "hosts");
  } catch (const LaunchError& error) {
    // mpirun read the file where it runs; here it is a last resort only.
    reading.note(str("the hostfile is of no use here: ", error.what()));
  }
}

void extractSlurm(Reading& reading, Launch& launch) {
  reading.requireAll({"SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"});
  takeRanks(reading, launch, {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"});
  if (!reading.isForced) refuseForeignPmi(reading, launch);
  launch.nodes = reading.take("nodes", "SLURM_STEP_NUM_NODES", 1);
  launch.nodeRank = reading.take("node_rank", "SLURM_NODEID", 0);
  takeSlurmHosts(reading, launch);
  if (launch.nodes == 1 && !launch.localWorldSize) launch.localWorldSize = launch.worldSize;
  reading.use("SLURM_STEP_ID");
  const std::string job = reading.text("SLURM_JOB_ID").value_or("");
  reading.record("job", str(job, ".", *reading.text("SLURM_STEP_ID")), "SLURM_JOB_ID");
  takeMaster(reading, launch, "MASTER_ADDR", "MASTER_PORT");
  const auto rank = reading.text("RANK");
  if (rank && *rank != std::to_string(*launch.rank)) {
    reading.warn(str("RANK is ", inQuotes(*rank), ", but Slurm's SLURM_PROCID (", *launch.rank,
                     ") counts; if a launcher inside the step started this process, set "
                     "TACO_LAUNCHER=torch"));
  }
}

void extractMpich(Reading& reading, Launch& launch) {
  takeRanks(reading, launch, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"});
  setOneNodeWhereAllAreLocal(launch);
  takeMaster(reading, launch, "MASTER_ADDR", "MASTER_PORT");
  if (!launch.masterAddress && hasSeveralNodes(launch)) {
    reading.note("there is no MASTER_ADDR: rank 0 gives its address to the others through MPI");
  }
}

void extractTorch(Reading& reading, Launch& launch) {
  reading.requireAll({"RANK", "WORLD_SIZE", "LOCAL_RANK"});
  takeRanks(reading, launch, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"});
  // Ray Train says which node; others do not.
  launch.nodeRank = reading.take("node_rank", "NODE_RANK", 0);
  if (!launch.nodeRank) launch.nodeRank = reading.take("node_rank", "GROUP_RANK", 0);
  if (launch.localWorldSize && launch.localWorldSize == launch.worldSize) launch.nodes = 1;
  takeMaster(reading, launch, "MASTER_ADDR", "MASTER_PORT");
}

void extractRankWorld(Reading& reading, Launch& launch) {
  reading.requireAll({"RANK", "WORLD_SIZE"});
  takeRanks(reading, launch, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"});
  setOneNodeWhereAllAreLocal(launch);
  takeMaster(reading, launch, "MASTER_ADDR", "MASTER_PORT");
  const std::optional<int> gpus = visibleGpus(reading);
  if (gpus && *gpus > 1) {
    reading.warn(
        str("RANK and WORLD_SIZE are taken as those of processes, as torch does, but this "
            "process sees ",
            *gpus,
            " GPUs and nothing says which is its own; if they count nodes, start with "
            "`taco run`; if they count processes, set LOCAL_RANK too"));
  }
  if (reading.has("HEAD_ADDR")) {
    reading.warn(str("HEAD_ADDR is ", inQuotes(*reading.text("HEAD_ADDR")),
                     ", as in the TI platform's Ray mode, but WORLD_SIZE is set too, so RANK (",
                     *launch.rank,
                     ") is taken as a process's; unset WORLD_SIZE if RANK is the pod's"));
  }
}

void extractSingle(Reading& reading, Launch& launch) {
  refuseLostRanks(reading);
  launch.rank = 0;
  launch.worldSize = 1;
  launch.localRank = 0;
  launch.localWorldSize = 1;
  launch.nodeRank = 0;
  launch.nodes = 1;
  launch.processesPerNode =
      reading.take("processes_per_node", "GPU_NUM_PER_NODE", 0, LaunchRule::kE4);
  if (launch.processesPerNode == 0) launch.processesPerNode = std::nullopt;
  takeMaster(reading, launch, "MASTER_ADDR", "MASTER_PORT");
  const bool isSlurm = reading.has("SLURM_JOB_ID") || reading.has("SLURM_JOBID");
  const auto tasks = reading.text("SLURM_NTASKS");
  if (isSlurm && (reading.has("SLURM_PROCID") || tasks) && tasks != "1") {
    reading.warn(str("E7: this is the batch script of a Slurm job",
                     tasks ? str(" with ", *tasks, " tasks (SLURM_NTASKS)") : "",
                     ", not one of its tasks (SLURM_STEP_ID is not set), and runs as a single "
                     "process; start the script with srun"));
  }
}

}  // namespace taco
