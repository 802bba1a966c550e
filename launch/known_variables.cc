#include "launch/known_variables.h"

#include <algorithm>

#include "csrc/base/format.h"
#include "launch/launch_env.h"

namespace taco {
namespace {

// The rows' names where a variable belongs to one; "" for those that several rows share.
struct Known {
  const char* name;
  const char* row;
};

constexpr Known kKnown[] = {
    {"TACO_LAUNCHER", ""},
    {"TACO_RANK", "explicit"},
    {"TACO_WORLD_SIZE", "explicit"},
    {"TACO_LOCAL_RANK", "explicit"},
    {"TACO_LOCAL_WORLD_SIZE", "explicit"},
    {"RANK", ""},
    {"WORLD_SIZE", ""},
    {"LOCAL_RANK", ""},
    {"LOCAL_WORLD_SIZE", ""},
    {"NODE_RANK", "torch"},
    {"GROUP_RANK", "torchrun"},
    {"GROUP_WORLD_SIZE", "torchrun"},
    {"TORCHELASTIC_RUN_ID", "torchrun"},
    {"MASTER_ADDR", ""},
    {"MASTER_PORT", ""},
    {"HOROVOD_RANK", "horovod"},
    {"HOROVOD_SIZE", "horovod"},
    {"HOROVOD_LOCAL_RANK", "horovod"},
    {"HOROVOD_LOCAL_SIZE", "horovod"},
    {"HOROVOD_CROSS_RANK", "horovod"},
    {"HOROVOD_CROSS_SIZE", "horovod"},
    {"OMPI_COMM_WORLD_RANK", "openmpi"},
    {"OMPI_COMM_WORLD_SIZE", "openmpi"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "openmpi"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "openmpi"},
    {"OMPI_COMM_WORLD_NODE_RANK", "openmpi"},
    {"OMPI_MCA_orte_default_hostfile", "ti-mpi"},
    {"PRTE_MCA_prte_default_hostfile", "ti-mpi"},
    {"NODE_IP_SLOT_LIST", "ti-mpi"},
    {"SLURM_JOB_ID", "slurm"},
    {"SLURM_STEP_ID", "slurm"},
    {"SLURM_PROCID", "slurm"},
    {"SLURM_LOCALID", "slurm"},
    {"SLURM_NODEID", "slurm"},
    {"SLURM_NTASKS", "slurm"},
    {"SLURM_STEP_NUM_TASKS", "slurm"},
    {"SLURM_STEP_NUM_NODES", "slurm"},
    {"SLURM_STEP_TASKS_PER_NODE", "slurm"},
    {"SLURM_STEP_NODELIST", "slurm"},
    {"PMI_RANK", "mpich"},
    {"PMI_SIZE", "mpich"},
    {"MPI_LOCALRANKID", "mpich"},
    {"MPI_LOCALNRANKS", "mpich"},
    {"PET_NNODES", "kubeflow"},
    {"PET_NODE_RANK", "kubeflow"},
    {"PET_NPROC_PER_NODE", "kubeflow"},
    {"PET_MASTER_ADDR", "kubeflow"},
    {"PET_MASTER_PORT", "kubeflow"},
    {"PET_RDZV_ENDPOINT", "kubeflow"},
    {"PET_RDZV_BACKEND", "kubeflow"},
    {"NODE_LIST", "ti-ddp"},
    {"INDEX", "ti-ddp"},
    {"GPU_NUM", "ti-ddp"},
    {"GPU_NUM_PER_NODE", "ti-ddp"},
    {"CUDA_VISIBLE_DEVICES", ""},
    {"GLOO_SOCKET_IFNAME", ""},
    {"NCCL_SOCKET_IFNAME", ""},
    {"TF_CONFIG", "tf-config"},
    {"HEAD_ADDR", "ti-ray"},
    {"HEAD_PORT", "ti-ray"},
};

size_t placeOf(const std::string& row) {
  const auto& rows = launchTable();
  return std::find_if(rows.begin(), rows.end(),
                      [&](const LaunchRow& one) { return one.name == row; }) -
         rows.begin();
}

// Said by the rows themselves where they have a say; nobody's leftovers.
bool isNobodys(const std::string& variable) {
  return variable == "CUDA_VISIBLE_DEVICES" || variable == "GLOO_SOCKET_IFNAME" ||
         variable == "NCCL_SOCKET_IFNAME" || variable == "SLURM_JOB_ID";
}

std::string whyIgnored(const Reading& reading, const Known& known) {
  const std::string variable = known.name;
  const std::string row = reading.row->name;
  if (variable == "OMPI_COMM_WORLD_NODE_RANK") {
    return "counts processes on this host, not nodes";
  }
  const bool isNodeOrProcess = variable == "RANK" || variable == "WORLD_SIZE";
  if (row == "openmpi" && isNodeOrProcess) {
    return "mpirun's ranks count; the TI platform's values for the node are left in its children";
  }
  if (row == "kubeflow" && isNodeOrProcess) {
    return "PET_* count; operators have written nodes and processes here";
  }
  if (row == "tf-config" && isNodeOrProcess) return "the rank follows from TF_CONFIG";
  if (variable == "TF_CONFIG" && placeOf(row) > placeOf("tf-config") && !reading.isForced) {
    return "describes no cluster";
  }
  const std::string own = known.row;
  if (own.empty() || own == row) return str("has no say in row ", row);
  if (reading.isForced) return str("belongs to row ", own, "; TACO_LAUNCHER chose ", row);
  if (own == "ti-ddp" && placeOf(row) < placeOf(own)) {
    return str("the TI platform's, for the node; row ", row, " knows the process");
  }
  if (placeOf(row) < placeOf(own)) return str("belongs to row ", own, ", which comes after ", row);
  return str("belongs to row ", own, ", whose other variables are not set");
}

}  // namespace

const std::vector<std::string>& launchVariables() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Known& known : kKnown) all.push_back(known.name);
    return all;
  }();
  return names;
}

std::vector<LaunchIgnored> ignoredVariables(const Reading& reading) {
  std::vector<LaunchIgnored> ignored;
  for (const Known& known : kKnown) {
    const auto found = reading.variables().find(known.name);
    if (found == reading.variables().end() || isNobodys(known.name)) continue;
    if (found->second.empty()) {
      ignored.push_back({known.name, "", "is empty, which counts as unset"});
    } else if (!reading.isUsed(known.name)) {
      ignored.push_back({known.name, found->second, whyIgnored(reading, known)});
    }
  }
  return ignored;
}

}  // namespace taco
