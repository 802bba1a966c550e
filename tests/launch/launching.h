#pragma once

#include <ctime>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "launch/launch.h"
#include "tests/csrc/catch.h"

namespace taco::testing {

using Files = std::map<std::string, std::string>;

// A world of files that are in a map, and of a host called "here" with the address 10.9.9.9.
inline LaunchSeams seamsOf(Files files = {},
                           std::vector<std::string> names = {"here", "10.9.9.9"}) {
  LaunchSeams seams;
  seams.readFile = [files](const std::string& path) -> std::optional<std::string> {
    const auto found = files.find(path);
    return found == files.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
  // A directory is what has files below it.
  seams.listDirectory = [files](const std::string& path) {
    std::vector<std::string> entries;
    for (const auto& [name, text] : files) {
      if (name.compare(0, path.size() + 1, path + "/") != 0) continue;
      const std::string rest = name.substr(path.size() + 1);
      const std::string entry = rest.substr(0, rest.find('/'));
      if (entries.empty() || entries.back() != entry) entries.push_back(entry);
    }
    return entries;
  };
  // A link is a file that holds its target.
  seams.readLink = seams.readFile;
  seams.ownNames = [names] { return names; };
  return seams;
}

inline Launch read(const Variables& variables, const Arguments& arguments = {},
                   const Files& files = {}) {
  return readLaunch(variables, arguments, seamsOf(files));
}

// The error of `action`, which must be a LaunchError of `rule` that contains all of `parts`.
inline std::string refusal(LaunchRule rule, const std::function<void()>& action,
                           const std::vector<std::string>& parts = {}) {
  try {
    action();
  } catch (const LaunchError& error) {
    const std::string text = error.what();
    INFO(text);
    CHECK(name(error.rule()) == std::string(name(rule)));
    for (const std::string& part : parts) {
      CHECK_THAT(text, Catch::Matchers::ContainsSubstring(part));
    }
    return text;
  }
  FAIL("expected a LaunchError of " << name(rule));
  return "";
}

inline std::string refusal(LaunchRule rule, const Variables& variables,
                           const std::vector<std::string>& parts) {
  return refusal(
      rule, [&] { read(variables); }, parts);
}

inline Variables with(Variables base, const Variables& more) {
  for (const auto& [key, value] : more) base[key] = value;
  return base;
}

inline Variables without(Variables base, const std::vector<std::string>& names) {
  for (const std::string& one : names) base.erase(one);
  return base;
}

// The origin of a field, "" when it has none.
inline std::string originOf(const Launch& launch, const std::string& field) {
  for (const LaunchValue& value : launch.values) {
    if (value.field == field) return value.origin;
  }
  return "";
}

// Why a variable was ignored, "" when it was not.
inline std::string whyIgnored(const Launch& launch, const std::string& variable) {
  for (const LaunchIgnored& one : launch.ignored) {
    if (one.variable == variable) return one.why;
  }
  return "";
}

// Processor time of this process: what a pure function may take, however busy the machine is.
inline double processorSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

inline bool mentions(const std::vector<std::string>& texts, const std::string& part) {
  for (const std::string& text : texts) {
    if (text.find(part) != std::string::npos) return true;
  }
  return false;
}

// --- What launchers leave, as given in their documents and as recorded.

// The TI platform's guide, DDP: node 1 of 2 with one GPU each.
inline const Variables kTiDdp = {{"NODE_LIST",
                                  "timaker-xxxyyy-launcher.training-job.svc.cluster.local:1,"
                                  "timaker-xxxyyy-worker-0.training-job.svc.cluster.local:1"},
                                 {"INDEX", "1"},
                                 {"MASTER_ADDR", "10.35.110.11"},
                                 {"MASTER_PORT", "23456"},
                                 {"WORLD_SIZE", "2"},
                                 {"RANK", "1"},
                                 {"GPU_NUM", "2"},
                                 {"GPU_NUM_PER_NODE", "1"}};

// The same guide, MPI/Horovod.
inline const Variables kTiMpi = {{"OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"},
                                 {"GPU_NUM", "2"},
                                 {"GPU_NUM_PER_NODE", "1"},
                                 {"NODE_IP_SLOT_LIST", "9.0.255.56:1,9.0.255.118:1"}};
inline const Files kTiHostfile = {{"/etc/mpi/hostfile",
                                   "train-960258573108964736-7an39bddmfpc-launcher slots=1\n"
                                   "train-960258573108964736-7an39bddmfpc-worker-0 slots=1\n"}};

// The same guide, PS-Worker, as it stands there.
inline const char* const kTiTfConfig = R"({
    "cluster": {
        "ps": [
            "train-960252492096760832-7an13ppfli80-ps-0.train-100031385875.svc:2222",
            "train-960252492096760832-7an13ppfli80-ps-1.train-100031385875.svc:2222"
        ],
        "worker": [
            "train-960252492096760832-7an13ppfli80-worker-0.train-100031385875.svc:2222",
            "train-960252492096760832-7an13ppfli80-worker-1.train-100031385875.svc:2222"
        ]
    },
    "task": {
        "type": "ps",
        "index": 0
    },
    "environment": "cloud"
})";

// The same guide, Ray.
inline const Variables kTiRay = {{"HEAD_ADDR", "train-1282671078021627392-9qu5j2n90b9c-head-0"},
                                 {"HEAD_PORT", "6379"},
                                 {"RANK", "0"}};

// A child of torchrun: process 5 of 8, 4 a node.
inline const Variables kTorchrun = {{"TORCHELASTIC_RUN_ID", "none"},
                                    {"RANK", "5"},
                                    {"WORLD_SIZE", "8"},
                                    {"LOCAL_RANK", "1"},
                                    {"LOCAL_WORLD_SIZE", "4"},
                                    {"GROUP_RANK", "1"},
                                    {"GROUP_WORLD_SIZE", "2"},
                                    {"MASTER_ADDR", "10.0.0.1"},
                                    {"MASTER_PORT", "29500"}};

// A child of OpenMPI's mpirun: process 3 of 4, on two hosts.
inline const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                                   {"OMPI_COMM_WORLD_SIZE", "4"},
                                   {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                   {"OMPI_COMM_WORLD_NODE_RANK", "1"}};

// A task of `srun -N 3 -n 7`: task 6, on the third node.
inline const Variables kSlurm = {{"SLURM_JOB_ID", "4711"},
                                 {"SLURM_STEP_ID", "0"},
                                 {"SLURM_PROCID", "6"},
                                 {"SLURM_LOCALID", "0"},
                                 {"SLURM_NODEID", "2"},
                                 {"SLURM_NTASKS", "7"},
                                 {"SLURM_STEP_NUM_TASKS", "7"},
                                 {"SLURM_STEP_NUM_NODES", "3"},
                                 {"SLURM_STEP_TASKS_PER_NODE", "3(x2),1"},
                                 {"SLURM_STEP_NODELIST", "gpu[08-09],login"}};

// A pod of Kubeflow's trainer.
inline const Variables kKubeflow = {{"PET_NNODES", "2"},
                                    {"PET_NODE_RANK", "1"},
                                    {"PET_NPROC_PER_NODE", "8"},
                                    {"PET_MASTER_ADDR", "job-master-0"},
                                    {"PET_MASTER_PORT", "23456"}};

}  // namespace taco::testing
