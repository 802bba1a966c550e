// The errors E1, E2, E4, E5 and E6: each names variable, value and where it came from. (E3 is in
// roll_call_test.cc, E7, a warning, in rows_process_test.cc, E8 in resolve_test.cc and
// address_test.cc.)
#include "csrc/base/format.h"
#include "tests/launch/launching.h"

namespace taco {
namespace {

using namespace taco::testing;

TEST_CASE("E1: a partial set names what is there and what is missing") {
  struct Partial {
    Variables variables;
    std::vector<std::string> parts;
  };
  const std::vector<Partial> all = {
      {{{"TACO_RANK", "0"}},
       {"TACO_WORLD_SIZE is missing", "TACO_RANK='0' is set", "row explicit"}},
      {{{"TACO_WORLD_SIZE", "2"}}, {"TACO_RANK is missing", "TACO_WORLD_SIZE='2'"}},
      {{{"TACO_LOCAL_RANK", "0"}}, {"TACO_RANK and TACO_WORLD_SIZE are missing"}},
      {{{"WORLD_SIZE", "2"}}, {"RANK is missing", "WORLD_SIZE='2'", "row rank-world"}},
      {{{"RANK", "0"}}, {"WORLD_SIZE is missing", "RANK='0'"}},
      {{{"LOCAL_RANK", "0"}}, {"RANK and WORLD_SIZE are missing"}},
      {{{"WORLD_SIZE", "2"}, {"GPU_NUM_PER_NODE", "8"}}, {"RANK is missing"}},
      {{{"HOROVOD_RANK", "0"}}, {"HOROVOD_SIZE is missing", "HOROVOD_RANK='0'"}},
      {{{"HOROVOD_SIZE", "2"}}, {"HOROVOD_RANK is missing"}},
      {{{"OMPI_COMM_WORLD_RANK", "0"}}, {"OMPI_COMM_WORLD_SIZE is missing"}},
      {{{"OMPI_COMM_WORLD_SIZE", "2"}}, {"OMPI_COMM_WORLD_RANK is missing"}},
      {{{"PMI_RANK", "0"}}, {"PMI_SIZE is missing"}},
      {{{"PMI_SIZE", "2"}}, {"PMI_RANK is missing"}},
      {{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}},
       {"SLURM_STEP_NUM_TASKS is missing", "SLURM_STEP_ID='0' and SLURM_PROCID='0' are set"}},
      {{{"TORCHELASTIC_RUN_ID", "none"}, {"LOCAL_RANK", "0"}, {"RANK", "0"}},
       {"WORLD_SIZE is missing", "row torchrun"}},
      {{{"PET_NNODES", "2"}}, {"PET_NODE_RANK is missing", "PET_NNODES is '2'"}},
      {{{"TACO_LAUNCHER", "openmpi"}},
       {"OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE are missing", "chosen by TACO_LAUNCHER"}},
      {{{"TACO_LAUNCHER", "ti-mpi"}}, {"NODE_IP_SLOT_LIST"}},
      {{{"TACO_LAUNCHER", "tf-config"}}, {"TF_CONFIG is missing"}},
  };
  for (const Partial& partial : all) refusal(LaunchRule::kE1, partial.variables, partial.parts);
}

TEST_CASE("E1: TI's variables of several nodes without RANK and WORLD_SIZE are no single process") {
  const Variables lost = {{"NODE_LIST", "a:2,b:2"},
                          {"INDEX", "1"},
                          {"GPU_NUM", "4"},
                          {"GPU_NUM_PER_NODE", "2"},
                          {"MASTER_ADDR", "10.0.0.1"},
                          {"MASTER_PORT", "23456"}};
  refusal(LaunchRule::kE1, lost,
          {"RANK and WORLD_SIZE are missing", "NODE_LIST ('a:2,b:2') names 2 hosts"});
  refusal(LaunchRule::kE1, without(lost, {"NODE_LIST"}),
          {"RANK and WORLD_SIZE are missing", "GPU_NUM is '4' and GPU_NUM_PER_NODE is '2'"});
  refusal(LaunchRule::kE1, with(lost, {{"WORLD_SIZE", "2"}}), {"RANK is missing"});
  CHECK(read(with(lost, {{"TACO_LAUNCHER", "single"}})).worldSize == 1);
  // One node, and a variable of somebody else.
  CHECK(read(with(lost, {{"NODE_LIST", "a:2"}, {"GPU_NUM", "2"}})).row == "single");
  CHECK(read({{"NODE_LIST", "a:2,b:2"}}).row == "single");
}

TEST_CASE("E1: TI's variables without GPU_NUM_PER_NODE do not make RANK a process's") {
  const Variables ranks = {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.1"}};
  for (const Variables& more :
       {Variables{{"NODE_LIST", "a:2,b:2"}}, Variables{{"GPU_NUM", "4"}},
        Variables{{"NODE_LIST", "a:2,b:2"}, {"GPU_NUM", "4"}, {"GPU_NUM_PER_NODE", ""}}}) {
    refusal(LaunchRule::kE1, with(ranks, more),
            {"GPU_NUM_PER_NODE", "missing", "RANK='1' and WORLD_SIZE='2'", "row ti-ddp"});
    CHECK(read(with(ranks, with(more, {{"LOCAL_RANK", "0"}}))).row == "torch");
  }
  CHECK(read(ranks).row == "rank-world");
}

TEST_CASE("E1: an argument without its counterpart") {
  refusal(LaunchRule::kE1,
          [] {
            read({}, {{"rank", "0"}});
          },
          {"the argument world_size is missing"});
  refusal(LaunchRule::kE1,
          [] {
            read({{"TACO_RANK", "0"}}, {{"world_size", "2"}});
          },
          {"the argument rank is missing"});
  refusal(LaunchRule::kE1,
          [] {
            read({}, {{"rank", "one"}, {"world_size", "2"}});
          },
          {"the argument rank is 'one'"});
}

TEST_CASE("E1: an empty string is as good as unset, and the error says so") {
  refusal(LaunchRule::kE1, {{"RANK", ""}, {"WORLD_SIZE", "2"}},
          {"RANK (set, but empty) is missing", "WORLD_SIZE='2'"});
}

TEST_CASE("E1: what is no integer, in every variable that must be one") {
  struct Number {
    Variables base;
    std::vector<std::string> names;
  };
  const std::vector<Number> all = {
      {{{"TACO_RANK", "0"}, {"TACO_WORLD_SIZE", "1"}},
       {"TACO_RANK", "TACO_WORLD_SIZE", "TACO_LOCAL_RANK", "TACO_LOCAL_WORLD_SIZE"}},
      {kTorchrun,
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"}},
      {{{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", "1"}},
       {"HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE",
        "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE"}},
      {kOpenMpi,
       {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE"}},
      {kSlurm,
       {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NODEID",
        "SLURM_STEP_NUM_NODES"}},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}},
       {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}},
      {kKubeflow, {"PET_NODE_RANK", "PET_NNODES", "PET_NPROC_PER_NODE", "WORLD_SIZE", "RANK"}},
      {kTiDdp, {"RANK", "WORLD_SIZE", "GPU_NUM", "GPU_NUM_PER_NODE", "INDEX"}},
      {kTiRay, {"RANK"}},
      {{{"NODE_IP_SLOT_LIST", "a:1"}}, {"GPU_NUM", "GPU_NUM_PER_NODE", "INDEX"}},
  };
  for (const Number& number : all) {
    for (const std::string& variable : number.names) {
      for (const char* const value :
           {"two", "1.5", " 1", "1\r", "0x1", "99999999999", "-", "1,2"}) {
        const std::string text =
            refusal(LaunchRule::kE1, with(number.base, {{variable, value}}), {variable});
        const std::string shown = std::string(value) == "1\r" ? "1\\x0d" : value;
        CHECK_THAT(text, Catch::Matchers::ContainsSubstring(str("'", shown, "'")));
      }
    }
  }
}

TEST_CASE("E1: a row that TACO_LAUNCHER does not know, a device word that torchrun does not know") {
  refusal(LaunchRule::kE1, {{"TACO_LAUNCHER", "mpi"}},
          {"TACO_LAUNCHER is 'mpi'", "explicit, torchrun, horovod", "ti-mpi and single"});
  refusal(LaunchRule::kE1,
          [] {
            read({}, {{"launcher", "mpi"}});
          },
          {"the argument launcher is 'mpi'"});
  refusal(LaunchRule::kE1, with(kKubeflow, {{"PET_NPROC_PER_NODE", "all"}}),
          {"PET_NPROC_PER_NODE is 'all'", "auto, gpu, cpu or xpu"});
}

TEST_CASE("E1: a hostfile that cannot be read") {
  refusal(LaunchRule::kE1, {{"OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"}},
          {"OMPI_MCA_orte_default_hostfile is '/etc/mpi/hostfile'", "cannot be read"});
}

TEST_CASE("E2: ranks outside their world, in every row") {
  struct Outside {
    Variables base;
    Variables change;
    std::vector<std::string> parts;
  };
  const std::vector<Outside> all = {
      {{{"TACO_WORLD_SIZE", "2"}},
       {{"TACO_RANK", "2"}},
       {"TACO_RANK is '2'", "TACO_WORLD_SIZE is '2'"}},
      {{{"TACO_WORLD_SIZE", "2"}}, {{"TACO_RANK", "-1"}}, {"TACO_RANK is '-1'", "at least 0"}},
      {{{"TACO_RANK", "0"}}, {{"TACO_WORLD_SIZE", "0"}}, {"TACO_WORLD_SIZE is '0'", "at least 1"}},
      {kTorchrun, {{"RANK", "8"}}, {"RANK is '8'", "WORLD_SIZE is '8'", "from 0 to 7"}},
      {kTorchrun, {{"LOCAL_RANK", "4"}}, {"LOCAL_RANK is '4'", "LOCAL_WORLD_SIZE is '4'"}},
      {kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}, {"LOCAL_WORLD_SIZE is '9'", "WORLD_SIZE is '8'"}},
      {kTorchrun, {{"GROUP_RANK", "2"}}, {"GROUP_RANK is '2'", "GROUP_WORLD_SIZE is '2'"}},
      {kTorchrun, {{"GROUP_WORLD_SIZE", "9"}}, {"GROUP_WORLD_SIZE is '9'", "WORLD_SIZE is '8'"}},
      {kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "4"}}, {"OMPI_COMM_WORLD_RANK is '4'"}},
      {kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}}, {"OMPI_COMM_WORLD_LOCAL_RANK is '2'"}},
      {kSlurm, {{"SLURM_PROCID", "7"}}, {"SLURM_PROCID is '7'"}},
      {kSlurm, {{"SLURM_NODEID", "3"}}, {"SLURM_NODEID is '3'"}},
      {{{"PMI_SIZE", "2"}}, {{"PMI_RANK", "2"}}, {"PMI_RANK is '2'"}},
      {{{"HOROVOD_SIZE", "2"}}, {{"HOROVOD_RANK", "3"}}, {"HOROVOD_RANK is '3'"}},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}}, {{"LOCAL_RANK", "2"}}, {"LOCAL_RANK is '2'"}},
      {{{"WORLD_SIZE", "2"}}, {{"RANK", "2"}}, {"RANK is '2'", "WORLD_SIZE is '2'"}},
      {kKubeflow, {{"PET_NODE_RANK", "2"}}, {"PET_NODE_RANK is '2'", "PET_NNODES is '2'"}},
      {kKubeflow, {{"PET_NNODES", "3:2"}}, {"PET_NNODES is '3:2'"}},
      {kKubeflow, {{"PET_NPROC_PER_NODE", "0"}}, {"PET_NPROC_PER_NODE is '0'"}},
      {without(kTiDdp, {"INDEX"}), {{"RANK", "2"}}, {"RANK is '2'", "WORLD_SIZE is '2'"}},
      {kTiDdp, {{"RANK", "-1"}}, {"RANK is '-1'"}},
      {kTiRay, {{"RANK", "-1"}}, {"RANK is '-1'"}},
  };
  for (const Outside& outside : all) {
    refusal(LaunchRule::kE2, with(outside.base, outside.change), outside.parts);
  }
}

TEST_CASE("E2: an argument outside its world") {
  refusal(LaunchRule::kE2,
          [] {
            read({}, {{"rank", "2"}, {"world_size", "2"}});
          },
          {"the argument rank is '2'", "the argument world_size is '2'"});
  refusal(LaunchRule::kE2,
          [] {
            read({}, {{"rank", "-1"}, {"world_size", "2"}});
          },
          {"the argument rank is '-1'", "at least 0"});
}

TEST_CASE("E4: GPU_NUM, NODE_LIST and nodes x GPUs a node that contradict each other") {
  refusal(LaunchRule::kE4, with(kTiDdp, {{"GPU_NUM", "3"}}),
          {"GPU_NUM is '3'", "NODE_LIST has 2", "timaker-xxxyyy-launcher"});
  refusal(LaunchRule::kE4, with(kTiDdp, {{"GPU_NUM_PER_NODE", "2"}}),
          {"GPU_NUM is '2'", "2 nodes (WORLD_SIZE) with 2 GPUs each (GPU_NUM_PER_NODE) have 4"});
  refusal(LaunchRule::kE4, with(without(kTiDdp, {"GPU_NUM"}), {{"GPU_NUM_PER_NODE", "2"}}),
          {"NODE_LIST has 2", "(GPU_NUM_PER_NODE) have 4"});
  refusal(LaunchRule::kE4, with(kTiDdp, {{"WORLD_SIZE", "3"}}),
          {"WORLD_SIZE is '3'", "NODE_LIST names 2 hosts"});
  refusal(LaunchRule::kE4, with(kTiDdp, {{"NODE_LIST", "a:1,a:1"}}),
          {"NODE_LIST ('a:1,a:1')", "'a' twice"});
}

TEST_CASE("E4: INDEX out of range, INDEX that is not RANK only warns") {
  for (const char* const index : {"2", "-1", "99"}) {
    refusal(LaunchRule::kE4, with(kTiDdp, {{"INDEX", index}}),
            {std::string("INDEX is '") + index + "'", "NODE_LIST has 2 nodes", "from 0 to 1"});
  }
  refusal(LaunchRule::kE4, with(without(kTiDdp, {"NODE_LIST"}), {{"INDEX", "2"}}),
          {"INDEX is '2'", "WORLD_SIZE has 2 nodes"});
  const Launch launch = read(with(kTiDdp, {{"INDEX", "0"}}));
  CHECK(launch.nodeRank == 1);
  CHECK(mentions(launch.warnings, "INDEX is 0 and RANK is 1; RANK counts"));
}

TEST_CASE("E4: the MPI mode's numbers") {
  const auto refuse = [](const Variables& change, const std::vector<std::string>& parts) {
    refusal(
        LaunchRule::kE4, [&] { read(with(kTiMpi, change), {}, kTiHostfile); }, parts);
  };
  refuse({{"GPU_NUM", "1"}}, {"GPU_NUM is '1'", "NODE_IP_SLOT_LIST has 2"});
  refuse({{"NODE_IP_SLOT_LIST", "9.0.255.56:1,9.0.255.118:2"}},
         {"NODE_IP_SLOT_LIST has 3 slots on 2 hosts", "OMPI_MCA_orte_default_hostfile has 2"});
  refuse({{"GPU_NUM_PER_NODE", "2"}}, {"GPU_NUM is '2'", "have 4"});
  refusal(LaunchRule::kE4, {{"NODE_IP_SLOT_LIST", "a:1,b:1"}, {"INDEX", "2"}},
          {"INDEX is '2'", "NODE_IP_SLOT_LIST names 2 hosts"});
  refusal(LaunchRule::kE2, {{"NODE_IP_SLOT_LIST", "a:0,b:0"}}, {"no processes", "a:0, b:0"});
}

TEST_CASE("E4: Slurm's lists of another step") {
  refusal(LaunchRule::kE4, with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "2(x3)"}}),
          {"SLURM_STEP_TASKS_PER_NODE ('2(x3)') has 6 tasks", "SLURM_STEP_NUM_TASKS is '7'"});
  refusal(LaunchRule::kE4, with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "6,1"}}),
          {"has 2 nodes", "SLURM_STEP_NUM_NODES is '3'"});
  refusal(LaunchRule::kE4, with(kSlurm, {{"SLURM_STEP_NODELIST", "a"}}),
          {"SLURM_STEP_NODELIST ('a') has 1 hosts", "3 nodes"});
}

TEST_CASE("E5: torchrun inside mpirun, or mpirun inside torchrun, with sizes that do not fit") {
  const Variables ambiguous =
      with(kTorchrun, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  refusal(LaunchRule::kE5, ambiguous,
          {"2 nodes", "WORLD_SIZE '8'", "OMPI_COMM_WORLD_SIZE is '4'", "TACO_LAUNCHER=torchrun",
           "TACO_LAUNCHER=openmpi"});
  CHECK(read(with(ambiguous, {{"TACO_LAUNCHER", "torchrun"}})).rank == 5);
  CHECK(read(with(ambiguous, {{"TACO_LAUNCHER", "openmpi"}})).rank == 0);
  refusal(LaunchRule::kE5, with(kTorchrun, {{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}}),
          {"PMI_SIZE is '4'", "TACO_LAUNCHER=mpich"});
  // Without GROUP_WORLD_SIZE the number of agents follows from the local size.
  refusal(LaunchRule::kE5, without(ambiguous, {"GROUP_WORLD_SIZE", "GROUP_RANK"}),
          {"LOCAL_WORLD_SIZE '4'"});
}

TEST_CASE(
    "E5: MPICH's mpiexec inside a Slurm job, whose processes inherit the daemon's SLURM_PROCID") {
  const Variables ambiguous = with(kSlurm, {{"PMI_RANK", "3"}, {"PMI_SIZE", "21"}});
  refusal(LaunchRule::kE5, ambiguous,
          {"SLURM_PROCID", "PMI_RANK is '3'", "PMI_SIZE is '21'", "TACO_LAUNCHER=mpich"});
  CHECK(read(with(ambiguous, {{"TACO_LAUNCHER", "mpich"}})).rank == 3);
  CHECK(read(with(ambiguous, {{"TACO_LAUNCHER", "slurm"}})).rank == 6);
  // srun --mpi=pmi2: both say the same.
  CHECK(read(with(kSlurm, {{"PMI_RANK", "6"}, {"PMI_SIZE", "7"}})).row == "slurm");
}

TEST_CASE("E6: a port outside 1-65535, at once") {
  for (const char* const port : {"0", "65536", "66660", "-5"}) {
    refusal(LaunchRule::kE6, with(kTiDdp, {{"MASTER_PORT", port}}),
            {std::string("MASTER_PORT is '") + port + "'", "1 to 65535"});
  }
  refusal(LaunchRule::kE6, with(kKubeflow, {{"PET_MASTER_PORT", "70000"}}), {"PET_MASTER_PORT"});
  refusal(LaunchRule::kE6, with(kTiRay, {{"HEAD_PORT", "0"}}), {"HEAD_PORT is '0'"});
  refusal(LaunchRule::kE6, with(kTiDdp, {{"MASTER_ADDR", "node:1"}}),
          {"MASTER_ADDR ('node:1') has the port 1", "MASTER_PORT is '23456'"});
  refusal(LaunchRule::kE1, with(kTiDdp, {{"MASTER_PORT", "http"}}), {"MASTER_PORT is 'http'"});
}

TEST_CASE("E6: a loopback master with several nodes") {
  for (const char* const master :
       {"127.0.0.1", "localhost", "::1", "[::1]", "127.0.1.1", "0.0.0.0"}) {
    refusal(LaunchRule::kE6, with(kTiDdp, {{"MASTER_ADDR", master}}),
            {"MASTER_ADDR is '", "2 nodes (WORLD_SIZE)", "rank 0's host"});
    refusal(LaunchRule::kE6, with(kOpenMpi, {{"MASTER_ADDR", master}, {"MASTER_PORT", "1"}}),
            {"MASTER_ADDR is '", "4 processes, 2 of them here"});
    refusal(LaunchRule::kE6, with(kKubeflow, {{"PET_MASTER_ADDR", master}}),
            {"PET_MASTER_ADDR is '"});
    refusal(LaunchRule::kE6, with(kSlurm, {{"MASTER_ADDR", master}}), {"3 nodes"});
  }
  // One node, or not known to be several: fine.
  CHECK(read({{"RANK", "0"},
              {"WORLD_SIZE", "1"},
              {"GPU_NUM_PER_NODE", "8"},
              {"MASTER_ADDR", "127.0.0.1"},
              {"MASTER_PORT", "1"}})
            .masterAddress == "127.0.0.1");
  CHECK(
      read({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "1"}})
          .masterAddress == "localhost");
}

TEST_CASE("E6: torchrun's agents have met already, so a loopback master of theirs is right") {
  // Two agents on one host, in a test or a container each with the host's network.
  CHECK(read(with(kTorchrun, {{"MASTER_ADDR", "127.0.0.1"}})).masterAddress == "127.0.0.1");
}

TEST_CASE("E6: MASTER_ADDR and MASTER_PORT exchanged") {
  for (const char* const host : {"10.0.0.1", "node-0", "fd00::1"}) {
    refusal(LaunchRule::kE6, with(kTiDdp, {{"MASTER_ADDR", "29500"}, {"MASTER_PORT", host}}),
            {"MASTER_ADDR is '29500'", std::string("MASTER_PORT is '") + host + "'", "exchanged"});
  }
  refusal(LaunchRule::kE6,
          [] {
            read(kTiDdp, {{"master_addr", "29500"}, {"master_port", "node"}});
          },
          {"the argument master_addr is '29500'", "exchanged"});
}

TEST_CASE("errors come at once") {
  const double begin = processorSeconds();
  refusal(LaunchRule::kE6, with(kTiDdp, {{"MASTER_PORT", "66660"}}), {});
  refusal(LaunchRule::kE1, {{"RANK", "0"}}, {});
  refusal(LaunchRule::kE1, with(kSlurm, {{"SLURM_STEP_NODELIST", "n[0-999999999]"}}), {});
  CHECK(processorSeconds() - begin < 1);
}

}  // namespace
}  // namespace taco
