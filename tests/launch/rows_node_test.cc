// Rows 8-11 and 13 of the decision table: a node, a role, and the place before mpirun.
#include "tests/launch/launching.h"

namespace taco {
namespace {

using namespace taco::testing;

TEST_CASE("row 8, kubeflow: PET_* only") {
  const Launch launch = read(kKubeflow);
  CHECK(launch.row == "kubeflow");
  CHECK(launch.level == LaunchLevel::kNode);
  CHECK(launch.nodeRank == 1);
  CHECK(launch.nodes == 2);
  CHECK(launch.processesPerNode == 8);
  CHECK(launch.masterAddress == "job-master-0");
  CHECK(launch.masterPort == 23456);
  CHECK_FALSE(launch.rank);
  CHECK_FALSE(launch.worldSize);
}

TEST_CASE("row 8, kubeflow: WORLD_SIZE as nodes (Volcano) and as nodes x processes (v1)") {
  // v1 writes replicas x processes beside the pod's index; Volcano counts pods in both.
  for (const char* const worldSize : {"2", "16"}) {
    const Launch launch = read(with(kKubeflow, {{"WORLD_SIZE", worldSize}, {"RANK", "1"}}));
    CHECK(launch.nodes == 2);
    CHECK(launch.nodeRank == 1);
    CHECK(launch.processesPerNode == 8);
    CHECK(whyIgnored(launch, "WORLD_SIZE") ==
          "PET_* count; operators have written nodes and processes here");
    CHECK(launch.warnings.empty());
  }
  refusal(
      LaunchRule::kE4, with(kKubeflow, {{"WORLD_SIZE", "4"}}),
      {"WORLD_SIZE is '4'", "2 nodes (PET_NNODES)", "8 processes each (PET_NPROC_PER_NODE)", "16"});
}

TEST_CASE("row 8, kubeflow: RANK that is not PET_NODE_RANK only warns") {
  const Launch launch = read(with(kKubeflow, {{"RANK", "0"}}));
  CHECK(launch.nodeRank == 1);
  CHECK(mentions(launch.warnings, "RANK is 0 and PET_NODE_RANK is 1"));
}

TEST_CASE("row 8, kubeflow: an elastic number of nodes with a rendezvous endpoint") {
  const Launch launch = read({{"PET_NNODES", "1:4"},
                              {"PET_NPROC_PER_NODE", "2"},
                              {"PET_RDZV_BACKEND", "c10d"},
                              {"PET_RDZV_ENDPOINT", "job-worker-0:29400"}});
  CHECK_FALSE(launch.nodes);
  CHECK_FALSE(launch.nodeRank);
  CHECK(launch.masterAddress == "job-worker-0");
  CHECK(launch.masterPort == 29400);
  CHECK(mentions(launch.notes, "'1:4'"));
  refusal(LaunchRule::kLevel, [&] { asProcess(launch); }, {"node ? of a changing number"});
}

TEST_CASE(
    "row 8, kubeflow: torchrun's own defaults, and MASTER_ADDR where PET_MASTER_ADDR is not") {
  const Launch launch =
      read({{"PET_NODE_RANK", "0"}, {"MASTER_ADDR", "m"}, {"MASTER_PORT", "1234"}});
  CHECK(launch.nodes == 1);
  CHECK(launch.processesPerNode == 1);
  CHECK(launch.masterAddress == "m");
  CHECK(asProcess(launch).worldSize == 1);
}

TEST_CASE("row 9, ti-ddp: the TI guide's variables") {
  const Launch launch = read(kTiDdp);
  CHECK(launch.row == "ti-ddp");
  CHECK(launch.level == LaunchLevel::kNode);
  CHECK(launch.nodes == 2);
  CHECK(launch.nodeRank == 1);
  CHECK(launch.processesPerNode == 1);
  CHECK(launch.hosts ==
        std::vector<HostSlots>{{"timaker-xxxyyy-launcher.training-job.svc.cluster.local", 1},
                               {"timaker-xxxyyy-worker-0.training-job.svc.cluster.local", 1}});
  CHECK(launch.masterAddress == "10.35.110.11");
  CHECK(launch.masterPort == 23456);
  CHECK_FALSE(launch.rank);
  CHECK_FALSE(launch.worldSize);
  CHECK(launch.warnings.empty());
  CHECK(launch.ignored.empty());
  CHECK(originOf(launch, "nodes") == "WORLD_SIZE");
  CHECK(originOf(launch, "node_rank") == "RANK");
}

TEST_CASE("row 9, ti-ddp: one process a node is a process, several are not") {
  const Launch process = asProcess(read(kTiDdp));
  CHECK(process.level == LaunchLevel::kProcess);
  CHECK(process.rank == 1);
  CHECK(process.worldSize == 2);
  CHECK(process.localRank == 0);
  CHECK(process.localWorldSize == 1);
  const Launch several = read({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"GPU_NUM_PER_NODE", "8"}});
  refusal(LaunchRule::kLevel, [&] { asProcess(several); },
          {"node 1 of 2 with 8 processes", "`taco run script.py` on every node"});
}

TEST_CASE("row 9, ti-ddp: a task without GPUs has one process a node") {
  const Launch launch =
      read(with(kTiDdp, {{"GPU_NUM", "0"}, {"GPU_NUM_PER_NODE", "0"}, {"NODE_LIST", "a:0,b:0"}}));
  CHECK(launch.processesPerNode == 1);
  CHECK(mentions(launch.notes, "without a GPU"));
}

TEST_CASE("row 10, tf-config: the TI guide's, from every task's point of view") {
  const Launch ps = read({{"TF_CONFIG", kTiTfConfig}});
  CHECK(ps.row == "tf-config");
  CHECK(ps.level == LaunchLevel::kRole);
  CHECK(ps.role == "ps");
  CHECK(ps.roleIndex == 0);
  CHECK(ps.rank == 2);
  CHECK(ps.worldSize == 4);
  CHECK(ps.localRank == 0);
  CHECK(ps.localWorldSize == 1);
  CHECK(ps.masterAddress ==
        "train-960252492096760832-7an13ppfli80-worker-0.train-100031385875.svc");
  CHECK(ps.masterPort == 2222);
  CHECK(ps.hosts.size() == 4);

  std::string text = kTiTfConfig;
  text.replace(text.find("\"type\": \"ps\""), 12, "\"type\": \"worker\"");
  const Launch worker = read({{"TF_CONFIG", text}, {"RANK", "7"}, {"WORLD_SIZE", "9"}});
  CHECK(worker.role == "worker");
  CHECK(worker.rank == 0);
  CHECK(whyIgnored(worker, "RANK") == "the rank follows from TF_CONFIG");
}

TEST_CASE("row 10, tf-config: tasks on one host are counted there") {
  const Launch launch = read({{"TF_CONFIG",
                               R"({"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"],
                                   "ps": ["127.0.0.1:3"]}, "task": {"type": "ps", "index": 0}})"}});
  CHECK(launch.localRank == 2);
  CHECK(launch.localWorldSize == 3);
  CHECK(launch.hosts == std::vector<HostSlots>{{"127.0.0.1", 3}});
  refusal(LaunchRule::kE6,
          {{"TF_CONFIG", R"({"cluster": {"worker": ["127.0.0.1:1"], "ps": ["node:3"]},
                             "task": {"type": "ps", "index": 0}})"}},
          {"TF_CONFIG", "'127.0.0.1'"});
}

TEST_CASE("row 11, ti-ray: RANK is the pod's index, never a process's rank") {
  const Launch head = read(kTiRay);
  CHECK(head.row == "ti-ray");
  CHECK(head.level == LaunchLevel::kNode);
  CHECK(head.nodeRank == 0);
  CHECK_FALSE(head.rank);
  CHECK_FALSE(head.worldSize);
  CHECK_FALSE(head.nodes);
  CHECK_FALSE(head.masterAddress);
  CHECK(head.headAddress == "train-1282671078021627392-9qu5j2n90b9c-head-0");
  CHECK(head.headPort == 6379);
  refusal(LaunchRule::kLevel, [&] { asProcess(head); },
          {"Ray cluster", "torch_taco.ray.TacoConfig"});
  const Launch worker = read({{"HEAD_ADDR", "head-0"}, {"RANK", "3"}});
  CHECK(worker.row == "ti-ray");
  CHECK(worker.nodeRank == 3);
  CHECK_FALSE(worker.headPort);
}

TEST_CASE("row 11, ti-ray: a head with two ports (E6)") {
  CHECK(read({{"HEAD_ADDR", "head:1"}, {"RANK", "0"}}).headPort == 1);
  refusal(LaunchRule::kE6, {{"HEAD_ADDR", "head:1"}, {"HEAD_PORT", "2"}, {"RANK", "0"}},
          {"HEAD_ADDR has the port 1", "HEAD_PORT is '2'"});
}

TEST_CASE("row 11, ti-ray: a worker of Ray Train on such a pod is a process") {
  const Launch worker =
      read(with(kTiRay, {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}}));
  CHECK(worker.row == "torch");
  CHECK(worker.rank == 1);
  CHECK(whyIgnored(worker, "HEAD_ADDR") == "belongs to row ti-ray, which comes after torch");
  // Without LOCAL_RANK it is torch's row 12, and the doubt is told.
  const Launch doubtful = read(with(kTiRay, {{"RANK", "1"}, {"WORLD_SIZE", "2"}}));
  CHECK(doubtful.row == "rank-world");
  CHECK(mentions(doubtful.warnings, "HEAD_ADDR"));
}

TEST_CASE("row 13, ti-mpi: the TI guide's variables on the first host, and on another") {
  const auto readOn = [](const std::string& host, const std::string& address) {
    return readLaunch(kTiMpi, {}, seamsOf(kTiHostfile, {host, address}));
  };
  const Launch first = readOn("train-960258573108964736-7an39bddmfpc-launcher", "9.0.255.56");
  CHECK(first.row == "ti-mpi");
  CHECK(first.level == LaunchLevel::kLauncher);
  CHECK(first.worldSize == 2);
  CHECK(first.nodes == 2);
  CHECK(first.nodeRank == 0);
  CHECK(first.processesPerNode == 1);
  // The list comes before the hostfile.
  CHECK(first.hosts == std::vector<HostSlots>{{"9.0.255.56", 1}, {"9.0.255.118", 1}});
  CHECK(originOf(first, "hosts") == "NODE_IP_SLOT_LIST");
  CHECK(originOf(first, "hostfile") == "OMPI_MCA_orte_default_hostfile");
  CHECK_FALSE(first.rank);
  CHECK(readOn("elsewhere", "9.0.255.118").nodeRank == 1);
  const Launch stranger = readOn("elsewhere", "9.0.0.1");
  CHECK_FALSE(stranger.nodeRank);
  CHECK(mentions(stranger.notes, "none of the hosts is this one"));
  refusal(LaunchRule::kLevel, [&] { asProcess(first); }, {"mpirun", "taco run"});
}

TEST_CASE(
    "row 13, ti-mpi: the hostfile alone, found by this host's name, and one that is not here") {
  const Variables alone = without(kTiMpi, {"NODE_IP_SLOT_LIST"});
  const Launch launch = readLaunch(
      alone, {},
      seamsOf(kTiHostfile, {"train-960258573108964736-7an39bddmfpc-worker-0.svc.cluster.local"}));
  CHECK(launch.nodeRank == 1);
  CHECK(launch.hosts ==
        std::vector<HostSlots>{{"train-960258573108964736-7an39bddmfpc-launcher", 1},
                               {"train-960258573108964736-7an39bddmfpc-worker-0", 1}});
  // Hosts that only wait need not have the file.
  const Launch waiting = read(kTiMpi);
  CHECK(waiting.hosts.size() == 2);
  CHECK(mentions(waiting.notes, "the hostfile is of no use here"));
}

TEST_CASE("row 13, ti-mpi: the list of addresses alone, found by this host's address") {
  const Launch launch = readLaunch({{"NODE_IP_SLOT_LIST", "9.0.255.56:1,9.0.255.118:1"}}, {},
                                   seamsOf({}, {"here", "9.0.255.118"}));
  CHECK(launch.row == "ti-mpi");
  CHECK(launch.worldSize == 2);
  CHECK(launch.nodeRank == 1);
}

TEST_CASE("row 13, ti-mpi: INDEX where no name fits, OpenMPI 5's variable, the word none") {
  const Files files = {{"/h", "a slots=8\nb slots=4\n"}};
  const Launch launch = read({{"PRTE_MCA_prte_default_hostfile", "/h"}, {"INDEX", "1"}}, {}, files);
  CHECK(launch.row == "ti-mpi");
  CHECK(launch.worldSize == 12);
  CHECK(launch.nodeRank == 1);
  CHECK_FALSE(launch.processesPerNode);  // 8 and 4
  CHECK(originOf(launch, "hosts") == "PRTE_MCA_prte_default_hostfile");
  const Launch none =
      read({{"OMPI_MCA_orte_default_hostfile", "none"}, {"NODE_IP_SLOT_LIST", "a:1"}}, {}, files);
  CHECK(none.hosts == std::vector<HostSlots>{{"a", 1}});
}

TEST_CASE("arguments for the master come first in every row") {
  const Arguments master = {{"master_addr", "10.0.0.7"}, {"master_port", "777"}};
  for (const Variables& variables : {kKubeflow, kTiDdp, Variables{{"TF_CONFIG", kTiTfConfig}},
                                     Variables{{"NODE_IP_SLOT_LIST", "a:1"}},
                                     Variables{{"PET_NNODES", "1"}, {"PET_RDZV_ENDPOINT", "a:1"}},
                                     kTorchrun, kSlurm, kOpenMpi}) {
    const Launch launch = read(variables, master);
    CHECK(launch.masterAddress == "10.0.0.7");
    CHECK(launch.masterPort == 777);
    CHECK(originOf(launch, "master_address") == "the argument master_addr");
  }
}

TEST_CASE("row 10, tf-config: rank 0 without a port is refused (E1)") {
  refusal(LaunchRule::kE1,
          {{"TF_CONFIG", R"({"cluster": {"worker": ["w"]}, "task": {"type": "worker"}})"}},
          {"TF_CONFIG gives worker 0 the address 'w' without a port"});
}

TEST_CASE("row 13, ti-mpi: localhost is this host, and no processes are an error") {
  CHECK(read({{"NODE_IP_SLOT_LIST", "localhost:2"}}).nodeRank == 0);
  refusal(LaunchRule::kE2,
          [] {
            read(kTiMpi, {{"np", "0"}}, kTiHostfile);
          },
          {"the argument np is '0'", "at least 1"});
}

TEST_CASE("row 13, ti-mpi: fewer processes than slots by an argument") {
  const Launch launch = read(kTiMpi, {{"np", "1"}}, kTiHostfile);
  CHECK(launch.worldSize == 1);
}

}  // namespace
}  // namespace taco
