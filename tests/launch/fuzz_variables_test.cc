// Random subsets and corruptions of all known variables. Whatever the environment, the answer is a
// struct that keeps its promises or a LaunchError that names a variable; never a crash, never a
// hang.
#include <algorithm>
#include <set>

#include "launch/known_variables.h"
#include "launch/launch_env.h"
#include "launch/node_list.h"
#include "launch/text.h"
#include "tests/launch/fuzzing.h"
#include "tests/launch/launching.h"

namespace taco {
namespace {

using namespace taco::testing;

constexpr int kCases = 24000;

const std::vector<Variables> kWhole = {
    {{"TACO_RANK", "1"}, {"TACO_WORLD_SIZE", "2"}, {"TACO_LOCAL_RANK", "0"}},
    kTorchrun,
    {{"HOROVOD_RANK", "1"},
     {"HOROVOD_SIZE", "4"},
     {"HOROVOD_LOCAL_RANK", "1"},
     {"HOROVOD_LOCAL_SIZE", "2"},
     {"HOROVOD_CROSS_RANK", "0"},
     {"HOROVOD_CROSS_SIZE", "2"}},
    kOpenMpi,
    kSlurm,
    {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}},
    {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"NODE_RANK", "0"}},
    kKubeflow,
    {{"PET_NNODES", "1:3"}, {"PET_NPROC_PER_NODE", "auto"}, {"PET_RDZV_ENDPOINT", "a:1"}},
    kTiDdp,
    {{"TF_CONFIG", kTiTfConfig}},
    kTiRay,
    kTiMpi,
    {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}},
    {{"SLURM_JOB_ID", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}},
    {}};

const std::vector<std::string> kValues = {"",
                                          "0",
                                          "1",
                                          "2",
                                          "-1",
                                          "8",
                                          "2147483647",
                                          "1.5",
                                          "two",
                                          "66660",
                                          "29500",
                                          "127.0.0.1",
                                          "::1",
                                          "[fd00::1]:1",
                                          "auto",
                                          "none",
                                          "a:1,b:1,",
                                          "n[1-3],x",
                                          "2(x3),1",
                                          "^lo",
                                          "{}",
                                          "1:2",
                                          "torchrun",
                                          "openmpi",
                                          "single",
                                          "ti-ddp",
                                          "kubeflow",
                                          "tf-config",
                                          "ti-mpi",
                                          "slurm",
                                          "/etc/mpi/hostfile",
                                          "/gone",
                                          "0,1,2",
                                          "-1,0",
                                          "localhost",
                                          "99999999999999999999",
                                          " 1",
                                          "1\n",
                                          "\xff\xfe",
                                          "node-0"};

const std::vector<std::pair<std::string, std::string>> kArguments = {
    {"rank", "0"},           {"rank", "9"},       {"world_size", "2"},
    {"world_size", "x"},     {"local_rank", "0"}, {"launcher", "single"},
    {"launcher", "openmpi"}, {"launcher", "?"},   {"master_addr", "m"},
    {"master_port", "0"},    {"np", "1"},         {"np", "9"},
    {"visible_gpus", "2"}};

Variables randomVariables(Fuzz& fuzz) {
  Variables variables;
  for (size_t sets = 1 + fuzz.below(3); sets > 0; --sets) {
    for (const auto& [name, value] : fuzz.oneOf(kWhole)) {
      if (fuzz.chance(92)) variables[name] = value;
    }
  }
  for (size_t strays = fuzz.below(3); strays > 0; --strays) {
    variables[fuzz.oneOf(launchVariables())] = fuzz.oneOf(kValues);
  }
  if (variables.empty() || fuzz.chance(35)) return variables;
  for (size_t corruptions = 1 + fuzz.below(2); corruptions > 0; --corruptions) {
    auto one = variables.begin();
    std::advance(one, static_cast<long>(fuzz.below(variables.size())));
    one->second = fuzz.chance(50) ? fuzz.mutated(one->second, kValues) : fuzz.oneOf(kValues);
  }
  return variables;
}

bool isBelow(const std::optional<int>& value, const std::optional<int>& limit) {
  return !value || (*value >= 0 && (!limit || *value < *limit));
}

// What each struct promises; "" when it keeps it all.
std::string brokenPromise(const Launch& launch) {
  if (!isBelow(launch.rank, launch.worldSize)) return "0 <= rank < world size";
  if (!isBelow(launch.localRank, launch.localWorldSize))
    return "0 <= local rank < local world size";
  if (!isBelow(launch.nodeRank, launch.nodes)) return "0 <= node rank < nodes";
  for (const auto& count :
       {launch.worldSize, launch.localWorldSize, launch.nodes, launch.processesPerNode}) {
    if (count && *count < 1) return "counts from 1";
  }
  for (const auto& port : {launch.masterPort, launch.headPort}) {
    if (port && (*port < 1 || *port > 65535)) return "ports from 1 to 65535";
  }
  for (const auto& address : {launch.masterAddress, launch.headAddress}) {
    if (address && (address->empty() || (*address)[0] == '[')) return "addresses without brackets";
  }
  const bool isProcess =
      launch.level == LaunchLevel::kProcess || launch.level == LaunchLevel::kRole;
  if (isProcess && (!launch.rank || !launch.worldSize)) return "a process has a rank";
  if (!isProcess && launch.rank) return "only a process has a rank";
  if ((launch.level == LaunchLevel::kRole) == launch.role.empty()) return "a role at level role";
  if (launch.level == LaunchLevel::kNode && launch.row != "ti-ray" && !launch.processesPerNode &&
      launch.processesPerNodeWord.empty()) {
    return "a node knows how many processes it has";
  }
  if (launch.level == LaunchLevel::kLauncher &&
      (launch.hosts.empty() || !launch.worldSize || *launch.worldSize > sumOfSlots(launch.hosts))) {
    return "a launcher has hosts with slots enough";
  }
  return "";
}

bool namesItsOrigin(const std::string& text) {
  if (text.find("the argument ") != std::string::npos) return true;
  for (const std::string& variable : launchVariables()) {
    if (text.find(variable) != std::string::npos) return true;
  }
  return false;
}

struct Seen {
  std::set<std::string> rows;
  std::set<std::string> rules;
};

// Calls `action`; a LaunchError is as good as success if it says where it came from.
void allowRefusal(Seen& seen, const std::function<void()>& action) {
  try {
    action();
  } catch (const LaunchError& error) {
    seen.rules.insert(name(error.rule()));
    const std::string text = error.what();
    const bool isNamed = error.rule() == LaunchRule::kLevel || namesItsOrigin(text);
    if (!isNamed) FAIL("the error names no variable: " << text);
  }
}

TEST_CASE("fuzz: random subsets and corruptions of all known variables") {
  Fuzz fuzz("variables", kCases);
  Seen seen;
  std::string hostfile;
  LaunchSeams seams = seamsOf();
  seams.readFile = [&](const std::string& path) -> std::optional<std::string> {
    if (path != "/etc/mpi/hostfile") return std::nullopt;
    return hostfile;
  };
  const std::string whole = kTiHostfile.at("/etc/mpi/hostfile");
  double slowestSeconds = 0;
  for (int i = 0; i < fuzz.cases(); ++i) {
    const Variables variables = randomVariables(fuzz);
    hostfile = fuzz.chance(20) ? fuzz.mutated(whole, {whole}) : whole;
    Arguments arguments;
    if (fuzz.chance(15)) arguments.insert(fuzz.oneOf(kArguments));
    if (fuzz.chance(10)) arguments.insert(fuzz.oneOf(kArguments));
    const double begin = processorSeconds();
    try {
      allowRefusal(seen, [&] {
        const Launch launch = readLaunch(variables, arguments, seams);
        seen.rows.insert(launch.row);
        const std::string broken = brokenPromise(launch);
        if (!broken.empty()) FAIL("broken promise: " << broken << "\n" << describe(launch));
        if (describe(launch).find(launch.row) == std::string::npos) FAIL("describe names no row");
        allowRefusal(seen, [&] { requireMaster(launch); });
        allowRefusal(seen, [&] {
          const Launch process = asProcess(launch);
          if (!brokenPromise(process).empty() || !process.rank) FAIL("asProcess made no process");
          if (torchEnvironment(process, {"m", 1, ""}).count("RANK") == 0) FAIL("no RANK");
        });
      });
    } catch (const std::exception& error) {
      std::string input;
      for (const auto& [key, value] : variables) input += key + "=" + inQuotes(value) + " ";
      FAIL("seed " << fuzz.seed() << ", case " << i << ": " << error.what() << "\n" << input);
    }
    slowestSeconds = std::max(slowestSeconds, processorSeconds() - begin);
  }
  CHECK(slowestSeconds < 1);
  // The fuzz reaches all there is, or it would prove little. (E3 here is TF_CONFIG's.)
  CHECK(seen.rows.size() == launchTable().size());
  for (const char* const rule : {"E1", "E2", "E4", "E5", "E6", "E8", "level"}) {
    INFO(rule);
    CHECK(seen.rules.count(rule) == 1);
  }
}

}  // namespace
}  // namespace taco
