// Rows 1-7, 12 and 14 of the decision table: one process of the job.
#include "launch/launch_env.h"
#include "tests/launch/launching.h"

namespace taco {
namespace {

using namespace taco::testing;

// rank, world, local rank, local world, node rank, nodes; -1 where the environment does not say.
using Place = std::vector<int>;

Place placeOf(const Launch& launch) {
  return {launch.rank.value_or(-1),      launch.worldSize.value_or(-1),
          launch.localRank.value_or(-1), launch.localWorldSize.value_or(-1),
          launch.nodeRank.value_or(-1),  launch.nodes.value_or(-1)};
}

void check(const Launch& launch, const std::string& row, const Place& place) {
  CHECK(launch.row == row);
  CHECK(launch.level == LaunchLevel::kProcess);
  CHECK(placeOf(launch) == place);
}

TEST_CASE("row 1, explicit: TACO_RANK and TACO_WORLD_SIZE before everything else") {
  const Launch launch = read(with(
      kTorchrun, {{"TACO_RANK", "2"}, {"TACO_WORLD_SIZE", "3"}, {"OMPI_COMM_WORLD_RANK", "0"}}));
  check(launch, "explicit", {2, 3, -1, -1, -1, -1});
  CHECK(originOf(launch, "rank") == "TACO_RANK");
  CHECK(launch.masterAddress == "10.0.0.1");
  CHECK(whyIgnored(launch, "LOCAL_RANK") == "has no say in row explicit");
  CHECK(whyIgnored(launch, "GROUP_RANK") == "belongs to row torchrun, which comes after explicit");
}

TEST_CASE("row 1, explicit: with local rank and local world size") {
  check(read({{"TACO_RANK", "1"},
              {"TACO_WORLD_SIZE", "2"},
              {"TACO_LOCAL_RANK", "1"},
              {"TACO_LOCAL_WORLD_SIZE", "2"}}),
        "explicit", {1, 2, 1, 2, 0, 1});
}

TEST_CASE("row 1, explicit: arguments come before variables") {
  const Launch launch = read({{"TACO_RANK", "5"}, {"TACO_WORLD_SIZE", "9"}, {"RANK", "7"}},
                             {{"rank", "0"}, {"world_size", "4"}, {"local_rank", "0"}});
  check(launch, "explicit", {0, 4, 0, -1, -1, -1});
  CHECK(originOf(launch, "rank") == "the argument rank");
}

TEST_CASE("row 1: TACO_LAUNCHER, or the argument, forces a row") {
  const Variables both = with(kTorchrun, with(kOpenMpi, {{"TACO_LAUNCHER", "openmpi"}}));
  check(read(both), "openmpi", {3, 4, 1, 2, -1, -1});
  check(read(both, {{"launcher", "torchrun"}}), "torchrun", {5, 8, 1, 4, 1, 2});
  check(read(with(both, {{"TACO_LAUNCHER", "single"}})), "single", {0, 1, 0, 1, 0, 1});
  // Each row's name is understood; what it needs is missing here.
  for (const LaunchRow& row : launchTable()) {
    const std::string name = row.name;
    if (name != "single") refusal(LaunchRule::kE1, {{"TACO_LAUNCHER", name}}, {"missing", name});
  }
}

TEST_CASE("row 2, torchrun: a child, with the run id `none`") {
  const Launch launch = read(kTorchrun);
  check(launch, "torchrun", {5, 8, 1, 4, 1, 2});
  CHECK(launch.masterAddress == "10.0.0.1");
  CHECK(launch.masterPort == 29500);
  CHECK(launch.ignored.empty());
  CHECK(launch.warnings.empty());
}

TEST_CASE("row 2, torchrun: TI's variables left over in the child are ignored") {
  const Launch launch = read(with(kTiDdp, kTorchrun));
  check(launch, "torchrun", {5, 8, 1, 4, 1, 2});
  for (const char* const variable : {"NODE_LIST", "INDEX", "GPU_NUM", "GPU_NUM_PER_NODE"}) {
    CHECK(whyIgnored(launch, variable) ==
          "the TI platform's, for the node; row torchrun knows the process");
  }
}

TEST_CASE("row 2, torchrun: started by mpirun once a node, the sizes fit") {
  const Launch launch =
      read(with(kTorchrun, {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}));
  check(launch, "torchrun", {5, 8, 1, 4, 1, 2});
  CHECK(whyIgnored(launch, "OMPI_COMM_WORLD_RANK") ==
        "belongs to row openmpi, which comes after torchrun");
}

TEST_CASE("row 3, horovod") {
  const Launch launch = read({{"HOROVOD_RANK", "5"},
                              {"HOROVOD_SIZE", "8"},
                              {"HOROVOD_LOCAL_RANK", "1"},
                              {"HOROVOD_LOCAL_SIZE", "4"},
                              {"HOROVOD_CROSS_RANK", "1"},
                              {"HOROVOD_CROSS_SIZE", "2"},
                              {"RANK", "0"},
                              {"WORLD_SIZE", "2"},
                              {"OMPI_COMM_WORLD_RANK", "5"},
                              {"OMPI_COMM_WORLD_SIZE", "8"}});
  check(launch, "horovod", {5, 8, 1, 4, 1, 2});
  CHECK_FALSE(whyIgnored(launch, "RANK").empty());
}

TEST_CASE("row 3, horovod: hosts of 8 and 4, where CROSS_SIZE does not count the nodes") {
  check(read({{"HOROVOD_RANK", "7"},
              {"HOROVOD_SIZE", "12"},
              {"HOROVOD_LOCAL_RANK", "7"},
              {"HOROVOD_LOCAL_SIZE", "8"},
              {"HOROVOD_CROSS_RANK", "0"},
              {"HOROVOD_CROSS_SIZE", "1"}}),
        "horovod", {7, 12, 7, 8, 0, -1});
}

TEST_CASE("row 4, openmpi: RANK and WORLD_SIZE, which TI leaves in the child, are ignored") {
  const Launch launch = read(with(kTiDdp, kOpenMpi));
  check(launch, "openmpi", {3, 4, 1, 2, -1, -1});
  CHECK(whyIgnored(launch, "RANK") ==
        "mpirun's ranks count; the TI platform's values for the node are left in its children");
  CHECK_FALSE(whyIgnored(launch, "WORLD_SIZE").empty());
  CHECK_FALSE(whyIgnored(launch, "GPU_NUM_PER_NODE").empty());
  CHECK(launch.masterAddress == "10.35.110.11");
}

TEST_CASE("row 4, openmpi: OMPI_COMM_WORLD_NODE_RANK is a process's index, never a node's") {
  const Launch launch = read(kOpenMpi);
  CHECK_FALSE(launch.nodeRank);
  CHECK(whyIgnored(launch, "OMPI_COMM_WORLD_NODE_RANK") ==
        "counts processes on this host, not nodes");
}

TEST_CASE("row 4, openmpi: before Slurm, whose per-node SLURM_PROCID mpirun's daemons inherit") {
  const Launch launch = read(with(kSlurm, kOpenMpi));
  check(launch, "openmpi", {3, 4, 1, 2, -1, -1});
  CHECK(whyIgnored(launch, "SLURM_PROCID") == "belongs to row slurm, which comes after openmpi");
}

TEST_CASE("row 4, openmpi: all processes on one host") {
  check(read({{"OMPI_COMM_WORLD_RANK", "1"},
              {"OMPI_COMM_WORLD_SIZE", "2"},
              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
        "openmpi", {1, 2, 1, 2, 0, 1});
}

TEST_CASE("row 5, slurm: a task of srun, with its node's share of the tasks") {
  const Launch launch = read(kSlurm);
  check(launch, "slurm", {6, 7, 0, 1, 2, 3});
  CHECK(launch.hosts == std::vector<HostSlots>{{"gpu08", 3}, {"gpu09", 3}, {"login", 1}});
  check(read(with(kSlurm, {{"SLURM_PROCID", "4"}, {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "1"}})),
        "slurm", {4, 7, 1, 3, 1, 3});
}

TEST_CASE("row 5, slurm: 2(x3),1 as recorded, and a step smaller than the job") {
  check(read(with(kSlurm, {{"SLURM_STEP_NUM_NODES", "4"},
                           {"SLURM_NODEID", "3"},
                           {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                           {"SLURM_STEP_NODELIST", "node[01-03,7]"}})),
        "slurm", {6, 7, 0, 1, 3, 4});
  const Launch step = read({{"SLURM_JOB_ID", "1"},
                            {"SLURM_STEP_ID", "3"},
                            {"SLURM_PROCID", "1"},
                            {"SLURM_LOCALID", "1"},
                            {"SLURM_NTASKS", "64"},
                            {"SLURM_STEP_NUM_TASKS", "2"},
                            {"SLURM_STEP_NUM_NODES", "1"},
                            {"SLURM_NODEID", "0"}});
  check(step, "slurm", {1, 2, 1, 2, 0, 1});
}

TEST_CASE("row 5, slurm: RANK of a launcher inside the step is ignored, with a warning") {
  const Launch launch =
      read(with(kSlurm, {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}}));
  check(launch, "slurm", {6, 7, 0, 1, 2, 3});
  CHECK(mentions(launch.warnings, "TACO_LAUNCHER=torch"));
  CHECK(read(with(kSlurm, {{"RANK", "6"}})).warnings.empty());
}

TEST_CASE("row 6, mpich") {
  const Launch launch = read({{"PMI_RANK", "1"},
                              {"PMI_SIZE", "2"},
                              {"MPI_LOCALRANKID", "1"},
                              {"MPI_LOCALNRANKS", "2"},
                              {"PMI_FD", "8"},
                              {"RANK", "0"},
                              {"WORLD_SIZE", "1"},
                              {"GPU_NUM_PER_NODE", "2"}});
  check(launch, "mpich", {1, 2, 1, 2, 0, 1});
  CHECK(originOf(launch, "local_world_size") == "MPI_LOCALNRANKS");
  check(read({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}), "mpich", {1, 2, -1, -1, -1, -1});
}

TEST_CASE("row 7, torch: Ray Train, torch.distributed.launch, accelerate") {
  const Launch launch = read({{"RANK", "3"},
                              {"WORLD_SIZE", "4"},
                              {"LOCAL_RANK", "1"},
                              {"LOCAL_WORLD_SIZE", "2"},
                              {"NODE_RANK", "1"},
                              {"MASTER_ADDR", "10.0.0.1"},
                              {"MASTER_PORT", "41234"}});
  check(launch, "torch", {3, 4, 1, 2, 1, -1});
  CHECK(hasSeveralNodes(launch));
  check(read({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}}), "torch",
        {0, 2, 0, -1, -1, -1});
}

TEST_CASE("row 7, torch: TI's GPU_NUM_PER_NODE does not make it a node where LOCAL_RANK is set") {
  check(read({{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"GPU_NUM_PER_NODE", "2"}}),
        "torch", {3, 4, 1, -1, -1, -1});
}

TEST_CASE("row 12, rank-world: as torch takes it") {
  const Launch launch =
      read({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node"}, {"MASTER_PORT", "29500"}});
  check(launch, "rank-world", {1, 2, -1, -1, -1, -1});
  CHECK(launch.warnings.empty());
}

TEST_CASE("row 12, rank-world: a warning where several GPUs are visible") {
  const Variables ranks = {{"RANK", "1"}, {"WORLD_SIZE", "2"}};
  CHECK(mentions(read(with(ranks, {{"CUDA_VISIBLE_DEVICES", "0,1,2"}})).warnings, "sees 3 GPUs"));
  CHECK(mentions(read(ranks, {{"visible_gpus", "8"}}).warnings, "sees 8 GPUs"));
  CHECK(mentions(read(ranks, {},
                      {{"/proc/driver/nvidia/gpus/0000:3b:00.0/information", ""},
                       {"/proc/driver/nvidia/gpus/0000:d8:00.0/information", ""}})
                     .warnings,
                 "sees 2 GPUs"));
  CHECK(read(with(ranks, {{"CUDA_VISIBLE_DEVICES", "3"}})).warnings.empty());
  CHECK(read(with(ranks, {{"CUDA_VISIBLE_DEVICES", "0,-1,2"}})).warnings.empty());
  CHECK(read(ranks, {{"visible_gpus", "1"}}).warnings.empty());
}

TEST_CASE("row 14, single: nothing, or nothing that says a rank") {
  const Launch launch = read({});
  check(launch, "single", {0, 1, 0, 1, 0, 1});
  CHECK(launch.values.empty());
  CHECK(launch.ignored.empty());
  CHECK(launch.warnings.empty());
  check(read({{"PATH", "/bin"}, {"TF_CONFIG", "{}"}, {"MASTER_ADDR", "node"}}), "single",
        {0, 1, 0, 1, 0, 1});
}

TEST_CASE("row 14, single: a TF_CONFIG without a cluster is that of a single TensorFlow process") {
  for (const char* const text :
       {"{}", " {} ", R"({"cluster": {}})", R"({"environment": "cloud"})"}) {
    const Launch launch = read({{"TF_CONFIG", text}});
    CHECK(launch.row == "single");
    CHECK(whyIgnored(launch, "TF_CONFIG") == "describes no cluster");
    refusal(LaunchRule::kE1, {{"TF_CONFIG", text}, {"TACO_LAUNCHER", "tf-config"}},
            {"TF_CONFIG has no cluster"});
  }
}

TEST_CASE("row 14, single: an sbatch script without srun (E7) warns and runs alone") {
  const Launch launch =
      read({{"SLURM_JOB_ID", "4711"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}});
  check(launch, "single", {0, 1, 0, 1, 0, 1});
  REQUIRE(launch.warnings.size() == 1);
  CHECK_THAT(launch.warnings[0], Catch::Matchers::ContainsSubstring("8 tasks (SLURM_NTASKS)"));
  CHECK_THAT(launch.warnings[0], Catch::Matchers::ContainsSubstring("srun"));
  CHECK(whyIgnored(launch, "SLURM_PROCID") ==
        "belongs to row slurm, whose other variables are not set");
  CHECK(read({{"SLURM_JOB_ID", "1"}, {"SLURM_PROCID", "0"}}).warnings.size() == 1);
  CHECK(
      read({{"SLURM_JOB_ID", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}).warnings.empty());
}

TEST_CASE("an empty variable counts as unset, and is told") {
  const Launch launch = read({{"RANK", ""}, {"WORLD_SIZE", ""}, {"TACO_RANK", ""}});
  check(launch, "single", {0, 1, 0, 1, 0, 1});
  CHECK(whyIgnored(launch, "RANK") == "is empty, which counts as unset");
  CHECK(whyIgnored(launch, "TACO_RANK") == "is empty, which counts as unset");
}

}  // namespace
}  // namespace taco
