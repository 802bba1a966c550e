// The printed table, and the decision table itself.
#include <algorithm>
#include <set>

#include "launch/known_variables.h"
#include "launch/launch_env.h"
#include "tests/launch/launching.h"

namespace taco {
namespace {

using namespace taco::testing;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("the decision table has the rows in their order") {
  std::vector<std::string> names;
  for (const LaunchRow& row : launchTable()) {
    names.push_back(row.name);
    CHECK(std::string(row.detectedWhen).size() > 5);
    CHECK(std::string(row.meaning).size() > 5);
  }
  CHECK(names == std::vector<std::string>{"explicit", "torchrun", "horovod", "openmpi", "slurm",
                                          "mpich", "torch", "kubeflow", "ti-ddp", "tf-config",
                                          "ti-ray", "rank-world", "ti-mpi", "single"});
}

TEST_CASE("the first of several matching rows wins, all the way down the table") {
  // All at once, then one launcher fewer each time.
  Variables all = with(kTiDdp, kKubeflow);
  for (const Variables& more :
       {Variables{{"TACO_RANK", "0"}, {"TACO_WORLD_SIZE", "1"}},
        Variables{{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", "2"}},
        Variables{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}},
        Variables{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}},
        Variables{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}},
        Variables{{"TF_CONFIG", kTiTfConfig}},
        Variables{{"TORCHELASTIC_RUN_ID", "none"}, {"LOCAL_RANK", "0"}, {"GROUP_WORLD_SIZE", "2"}},
        Variables{{"HEAD_ADDR", "head"}, {"NODE_IP_SLOT_LIST", "a:1,b:1"}},
        Variables{{"PET_NPROC_PER_NODE", "1"}}}) {
    all = with(all, more);
  }
  const std::vector<std::pair<std::string, std::vector<std::string>>> steps = {
      {"explicit", {"TACO_RANK", "TACO_WORLD_SIZE"}},
      {"torchrun", {"TORCHELASTIC_RUN_ID"}},
      {"horovod", {"HOROVOD_RANK", "HOROVOD_SIZE"}},
      {"openmpi", {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}},
      {"slurm", {"SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"}},
      {"mpich", {"PMI_RANK", "PMI_SIZE"}},
      {"torch", {"LOCAL_RANK"}},
      {"kubeflow", {"PET_NNODES", "PET_NODE_RANK"}},
      {"ti-ddp", {"GPU_NUM_PER_NODE"}},
      {"tf-config", {"TF_CONFIG"}},
      {"rank-world", {"WORLD_SIZE"}},
      {"ti-ray", {"RANK"}},
      // What is left of TI's variables would be an error (E1): a job of which RANK was lost.
      {"ti-mpi", {"NODE_IP_SLOT_LIST", "NODE_LIST", "GPU_NUM"}},
      {"single", {}},
  };
  for (const auto& [row, remove] : steps) {
    INFO(row);
    CHECK(read(all).row == row);
    all = without(all, remove);
  }
}

TEST_CASE("describe: row, values with their origins, what was ignored and why, notes, warnings") {
  const std::string text =
      describe(read(with(kTiDdp, with(kOpenMpi, {{"INDEX", ""}, {"NCCL_SOCKET_IFNAME", "eth0"}}))));
  CHECK_THAT(
      text, ContainsSubstring("launch: process 3 of 4, local 1 of 2, master 10.35.110.11:23456\n"));
  CHECK_THAT(text, ContainsSubstring("row 4, openmpi (level process): OMPI_COMM_WORLD_RANK + "));
  CHECK_THAT(text,
             ContainsSubstring("\n  rank              3             from OMPI_COMM_WORLD_RANK\n"));
  CHECK_THAT(text, ContainsSubstring("\n  master_port       23456         from MASTER_PORT\n"));
  CHECK_THAT(text, ContainsSubstring("ignored:\n"));
  CHECK_THAT(text, ContainsSubstring("mpirun's ranks count; the TI platform's values"));
  CHECK_THAT(text, ContainsSubstring("is empty, which counts as unset"));
  CHECK_THAT(text, ContainsSubstring("note: NCCL_SOCKET_IFNAME=eth0 stays as it is\n"));
  CHECK(text.back() == '\n');
}

TEST_CASE("describe: one line says it all, at every level") {
  const auto first = [](const Launch& launch) {
    const std::string text = describe(launch);
    return text.substr(0, text.find('\n'));
  };
  CHECK(first(read({})) == "launch: process 0 of 1, local 0 of 1, node 0 of 1");
  CHECK(first(read(kTiDdp)) == "launch: node 1 of 2, 1 process a node, master 10.35.110.11:23456");
  CHECK(first(read({{"TF_CONFIG", kTiTfConfig}})) ==
        "launch: ps 0, rank 2 of 4, master "
        "train-960252492096760832-7an13ppfli80-worker-0.train-100031385875.svc:2222");
  CHECK(first(read(kTiMpi, {}, kTiHostfile)) ==
        "launch: mpirun is to start 2 processes on 2 hosts");
  CHECK(first(read(kTiRay)) == "launch: node 0 of a Ray cluster");
  CHECK(first(read({{"PET_NNODES", "1"}, {"PET_NPROC_PER_NODE", "auto"}})) ==
        "launch: node ? of 1, auto processes a node");
}

TEST_CASE("warnings are printed") {
  const std::string text = describe(read(with(kTiDdp, {{"INDEX", "0"}})));
  CHECK_THAT(text, ContainsSubstring("warning: INDEX is 0 and RANK is 1; RANK counts\n"));
}

TEST_CASE("the Markdown of the table has a line a row") {
  const std::string text = launchTableMarkdown();
  CHECK_THAT(text, ContainsSubstring("| 9 | `ti-ddp` | RANK + WORLD_SIZE + GPU_NUM_PER_NODE"));
  CHECK(std::count(text.begin(), text.end(), '\n') == static_cast<long>(launchTable().size()) + 2);
}

TEST_CASE("every known variable is known once") {
  const auto& names = launchVariables();
  CHECK(std::set<std::string>(names.begin(), names.end()).size() == names.size());
}

}  // namespace
}  // namespace taco
