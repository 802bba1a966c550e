// Inputs that went wrong for somebody, one test a line of the table in ../shared/facts/launch.md.
// Those about names and networks are in resolve_test.cc, about ports in port_check_test.cc, about
// duplicate ranks in roll_call_test.cc.
#include "tests/launch/launching.h"

namespace taco {
namespace {

using namespace taco::testing;

TEST_CASE("IPv6 masters: ::1, [::1] and [fd00::1] (pytorch#121807, sglang#3949)") {
  for (const char* const text : {"::1", "[::1]"}) {
    const Launch launch = read({{"TACO_RANK", "0"},
                                {"TACO_WORLD_SIZE", "2"},
                                {"MASTER_ADDR", text},
                                {"MASTER_PORT", "29500"}});
    CHECK(launch.masterAddress == "::1");
    CHECK(launch.masterPort == 29500);
  }
  const Launch launch = read(with(kTiDdp, {{"MASTER_ADDR", "[fd00::1]"}}));
  CHECK(launch.masterAddress == "fd00::1");
  CHECK(launch.masterPort == 23456);
  CHECK(torchEnvironment(launch, requireMaster(launch)).at("MASTER_ADDR") == "fd00::1");
  Variables bracketed = without(kTiDdp, {"MASTER_PORT"});
  bracketed["MASTER_ADDR"] = "[fd00::1]:1234";
  CHECK(read(bracketed).masterPort == 1234);
}

TEST_CASE("port 66660 is refused at once (CDial-GPT#103)") {
  refusal(LaunchRule::kE6, with(kTorchrun, {{"MASTER_PORT", "66660"}}),
          {"the environment variable MASTER_PORT is '66660', but ports go from 1 to 65535"});
}

TEST_CASE("RANK=1 WORLD_SIZE=2 GPU_NUM_PER_NODE=8 (kubeflow/trainer#1790)") {
  const Launch launch = read({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"GPU_NUM_PER_NODE", "8"}});
  CHECK(launch.row == "ti-ddp");
  CHECK(launch.level == LaunchLevel::kNode);
  CHECK(launch.nodeRank == 1);
  CHECK(launch.nodes == 2);
  CHECK(launch.processesPerNode == 8);
}

TEST_CASE("PET_NPROC_PER_NODE=auto (kubeflow/trainer#1992)") {
  for (const char* const word : {"auto", "gpu", "cpu"}) {
    const Launch launch =
        read({{"PET_NNODES", "1"}, {"PET_NODE_RANK", "0"}, {"PET_NPROC_PER_NODE", word}});
    CHECK(launch.row == "kubeflow");
    CHECK_FALSE(launch.processesPerNode);
    CHECK(launch.processesPerNodeWord == word);
    refusal(LaunchRule::kLevel, [&] { asProcess(launch); }, {"taco run", word});
  }
}

TEST_CASE("RANK missing (distrifuser#11)") {
  refusal(LaunchRule::kE1,
          {{"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}},
          {"the environment variable RANK is missing, though WORLD_SIZE='2' is set"});
}

TEST_CASE("GPU_NUM=8, 2 nodes, 8 a node (accelerate#2521)") {
  refusal(LaunchRule::kE4,
          {{"GPU_NUM", "8"}, {"WORLD_SIZE", "2"}, {"RANK", "0"}, {"GPU_NUM_PER_NODE", "8"}},
          {"the environment variable GPU_NUM is '8'",
           "2 nodes (WORLD_SIZE) with 8 GPUs each (GPU_NUM_PER_NODE) have 16"});
}

TEST_CASE("CUDA_VISIBLE_DEVICES=1,2 with GPU_NUM_PER_NODE=4 (PICK-pytorch#14)") {
  const Variables node = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"GPU_NUM_PER_NODE", "4"}};
  const Launch launch = read(with(node, {{"CUDA_VISIBLE_DEVICES", "1,2"}}));
  CHECK(launch.row == "ti-ddp");
  CHECK(launch.processesPerNode == 2);
  REQUIRE(launch.warnings.size() == 1);
  CHECK_THAT(launch.warnings[0],
             Catch::Matchers::ContainsSubstring("CUDA_VISIBLE_DEVICES is '1,2'"));
  CHECK_THAT(launch.warnings[0],
             Catch::Matchers::ContainsSubstring("2 of the 4 GPUs that GPU_NUM_PER_NODE says"));
  // As many or more than asked for, or the driver's other names: no word about it.
  for (const char* const devices : {"0,1,2,3", "0,1,2,3,4,5", "GPU-1,GPU-2,GPU-3,MIG-4", ""}) {
    const Launch enough = read(with(node, {{"CUDA_VISIBLE_DEVICES", devices}}));
    CHECK(enough.processesPerNode == 4);
    CHECK(enough.warnings.empty());
  }
  // All hidden: the user wants processes without GPUs.
  const Launch hidden = read(with(node, {{"CUDA_VISIBLE_DEVICES", "-1"}}));
  CHECK(hidden.processesPerNode == 4);
  CHECK(mentions(hidden.warnings, "hides every GPU"));
}

TEST_CASE("mpirun -np 2 with slots=1: the slots are listed (ompi#3133)") {
  const Files files = {{"/etc/mpi/hostfile", "node-a slots=1\n"}};
  const Variables variables = {{"OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"}};
  refusal(LaunchRule::kE4,
          [&] {
            read(variables, {{"np", "2"}}, files);
          },
          {"2 processes are asked for (the argument np), but the hosts have 1 slot (node-a:1; "
           "OMPI_MCA_orte_default_hostfile)"});
  refusal(LaunchRule::kE4,
          [&] {
            read(with(variables, {{"GPU_NUM", "2"}}), {}, files);
          },
          {"node-a:1"});
  const Launch launch = read(variables, {}, files);
  CHECK_NOTHROW(requireSlots(launch, 1));
  refusal(LaunchRule::kE4, [&] { requireSlots(launch, 2); }, {"node-a:1"});
}

TEST_CASE("a hostfile with comments, blank lines, CRLF, 8 and 4 slots, slots= (horovod#1428)") {
  const Launch launch = read({{"OMPI_MCA_orte_default_hostfile", "/h"}}, {},
                             {{"/h",
                               "# cluster\r\n\r\nnode-a slots=8 # big\r\n\r\nnode-b:4\r\n"
                               "node-c slots=4\r\n"}});
  CHECK(launch.hosts == std::vector<HostSlots>{{"node-a", 8}, {"node-b", 4}, {"node-c", 4}});
  CHECK(launch.worldSize == 16);
  CHECK(launch.warnings.empty());
}

TEST_CASE("NODE_LIST and NODE_IP_SLOT_LIST with a trailing comma") {
  const Launch ddp = read(with(kTiDdp, {{"NODE_LIST", "a:1,b:1,"}}));
  CHECK(ddp.hosts == std::vector<HostSlots>{{"a", 1}, {"b", 1}});
  REQUIRE(ddp.warnings.size() == 1);
  CHECK_THAT(ddp.warnings[0], Catch::Matchers::ContainsSubstring("NODE_LIST ('a:1,b:1,')"));
  const Launch mpi = read({{"NODE_IP_SLOT_LIST", "9.0.255.56:1,9.0.255.118:1,"}, {"GPU_NUM", "2"}});
  CHECK(mpi.hosts == std::vector<HostSlots>{{"9.0.255.56", 1}, {"9.0.255.118", 1}});
  REQUIRE(mpi.warnings.size() == 1);
  CHECK_THAT(mpi.warnings[0], Catch::Matchers::ContainsSubstring("NODE_IP_SLOT_LIST"));
}

TEST_CASE("GLOO_SOCKET_IFNAME=^lo: gloo wants a name (aws-do-eks#51)") {
  for (const char* const pattern : {"^lo", "=eth0", "^docker0,lo"}) {
    refusal(LaunchRule::kE1, with(kTorchrun, {{"GLOO_SOCKET_IFNAME", pattern}}),
            {std::string("GLOO_SOCKET_IFNAME is '") + pattern + "'",
             "gloo wants the name of an interface"});
  }
  CHECK_NOTHROW(read({{"NCCL_SOCKET_IFNAME", "^lo"}}));  // NCCL's own syntax
}

TEST_CASE("a set *_SOCKET_IFNAME is never overridden (ray#42652)") {
  const Variables interfaces = {{"NCCL_SOCKET_IFNAME", "eth0"}, {"GLOO_SOCKET_IFNAME", "eth1"}};
  const Launch launch = read(with(kTiDdp, interfaces));
  CHECK(mentions(launch.notes,
                 "NCCL_SOCKET_IFNAME=eth0 and GLOO_SOCKET_IFNAME=eth1 stay as they are"));
  for (const Variables& variables : {with(kTiDdp, interfaces), with(kTorchrun, interfaces),
                                     with(kSlurm, interfaces), Variables()}) {
    const Launch one = read(variables);
    for (const auto& [name, value] : torchEnvironment(one, requireMaster(one))) {
      CHECK(name.find("SOCKET_IFNAME") == std::string::npos);
    }
  }
}

}  // namespace
}  // namespace taco
