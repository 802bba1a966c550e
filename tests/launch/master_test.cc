// Which address and port the processes meet at.
#include "launch/master.h"

#include "tests/launch/launching.h"

namespace taco {
namespace {

using namespace taco::testing;

Master masterOf(const Variables& variables, const Files& files = {}) {
  return requireMaster(read(variables, {}, files));
}

TEST_CASE("MASTER_ADDR and MASTER_PORT, arguments before them") {
  const Master master = masterOf(kTorchrun);
  CHECK(master.address == "10.0.0.1");
  CHECK(master.port == 29500);
  CHECK(master.origin == "MASTER_ADDR");
  const Master given = requireMaster(read(kTorchrun, {{"master_addr", "m"}, {"master_port", "7"}}));
  CHECK(given.address == "m");
  CHECK(given.port == 7);
  CHECK(given.origin == "the argument master_addr");
  CHECK(requireMaster(read(kTorchrun, {{"master_port", "7"}})).address == "10.0.0.1");
}

TEST_CASE("an address that has its port") {
  const Master master =
      masterOf({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node:1234"}});
  CHECK(master.address == "node");
  CHECK(master.port == 1234);
  CHECK(masterOf({{"RANK", "0"},
                  {"WORLD_SIZE", "2"},
                  {"MASTER_ADDR", "node:1234"},
                  {"MASTER_PORT", "1234"}})
            .port == 1234);
}

TEST_CASE("a single process needs none") {
  CHECK(masterOf({}).address == "127.0.0.1");
  CHECK(masterOf({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).address == "127.0.0.1");
}

TEST_CASE("all processes on this host: this host") {
  const Master master = masterOf(
      {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  CHECK(master.address == "127.0.0.1");
  CHECK(master.port == 29500);
}

TEST_CASE("under MPI: MPI itself, else the first host of the hostfile, else -x MASTER_ADDR") {
  const Launch launch = read(kOpenMpi);
  CHECK(wantsMasterFromMpi(launch));
  CHECK(mentions(launch.notes, "through MPI"));
  refusal(LaunchRule::kE1, [&] { requireMaster(launch); },
          {"MASTER_ADDR is missing", "row openmpi", "-x MASTER_ADDR"});
  const Master master = masterOf(
      with(kOpenMpi, {{"OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"}}), kTiHostfile);
  CHECK(master.address == "train-960258573108964736-7an39bddmfpc-launcher");
  CHECK(master.port == 29500);
  CHECK(master.origin == "the first host of OMPI_MCA_orte_default_hostfile");
  // A hostfile that only mpirun's host has is no error in a child.
  CHECK(wantsMasterFromMpi(read(with(kOpenMpi, {{"PRTE_MCA_prte_default_hostfile", "/gone"}}))));
  CHECK_FALSE(wantsMasterFromMpi(
      read(with(kOpenMpi, {{"MASTER_ADDR", "node"}, {"MASTER_PORT", "29500"}}))));
  refusal(LaunchRule::kE1,
          [] {
            masterOf({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}});
          },
          {"-genv MASTER_ADDR"});
  refusal(LaunchRule::kE1,
          [] {
            masterOf({{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", "2"}});
          },
          {"-x MASTER_ADDR"});
}

TEST_CASE("under Slurm: the first host of the step, at a port that follows from the step") {
  const Master master = masterOf(kSlurm);
  CHECK(master.address == "gpu08");
  CHECK(master.port >= 15000);
  CHECK(master.port < 31000);
  CHECK(masterOf(with(kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}})).port == master.port);
  CHECK(masterOf(with(kSlurm, {{"SLURM_STEP_ID", "1"}})).port != master.port);
  CHECK(masterOf(with(kSlurm, {{"SLURM_JOB_ID", "4712"}})).port != master.port);
  CHECK(masterOf(with(kSlurm, {{"MASTER_PORT", "1234"}})).port == 1234);
  CHECK(masterOf(with(kSlurm, {{"MASTER_ADDR", "m"}, {"MASTER_PORT", "1234"}})).address == "m");
}

TEST_CASE("one of the two is not enough where others must find it (E1)") {
  refusal(LaunchRule::kE1, [] { masterOf(without(kTorchrun, {"MASTER_PORT"})); },
          {"MASTER_ADDR is '10.0.0.1'", "MASTER_PORT is missing"});
  refusal(LaunchRule::kE1, [] { masterOf(without(kTorchrun, {"MASTER_ADDR"})); },
          {"MASTER_PORT is '29500'", "MASTER_ADDR is missing"});
  refusal(LaunchRule::kE1,
          [] {
            masterOf({{"RANK", "0"}, {"WORLD_SIZE", "2"}});
          },
          {"MASTER_ADDR is missing", "row rank-world", "set MASTER_ADDR to its host"});
  refusal(LaunchRule::kE1, [] { masterOf(without(kKubeflow, {"PET_MASTER_PORT"})); },
          {"PET_MASTER_PORT is missing"});
}

TEST_CASE("what torch reads") {
  const Launch launch = read(kTorchrun);
  CHECK(torchEnvironment(launch, requireMaster(launch)) == Variables{{"RANK", "5"},
                                                                     {"WORLD_SIZE", "8"},
                                                                     {"LOCAL_RANK", "1"},
                                                                     {"LOCAL_WORLD_SIZE", "4"},
                                                                     {"MASTER_ADDR", "10.0.0.1"},
                                                                     {"MASTER_PORT", "29500"}});
  const Launch role = read({{"TF_CONFIG", kTiTfConfig}});
  CHECK(torchEnvironment(role, requireMaster(role)).at("RANK") == "2");
  const Launch node = read({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"GPU_NUM_PER_NODE", "8"}});
  refusal(LaunchRule::kLevel, [&] { torchEnvironment(node, {"m", 1, ""}); }, {"taco run"});
}

}  // namespace
}  // namespace taco
