#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/launch_error.h"
#include "launch/seams.h"

namespace taco {

// Environment variables, name -> value.
using Variables = std::map<std::string, std::string>;

// What the caller was given explicitly (arguments of init_process_group, options of `taco run`), as
// text. Keys: rank, world_size, local_rank, local_world_size (a process of its own: row
// "explicit"); launcher (forces a row, as TACO_LAUNCHER does); master_addr, master_port (instead of
// MASTER_ADDR, MASTER_PORT); np (processes that mpirun is to start); visible_gpus (how many the
// process sees).
using Arguments = std::map<std::string, std::string>;

// What the environment describes: one process of the job, one node of it (which starts its
// processes), one task of a TensorFlow cluster, or a place from which a launcher is to be started.
enum class LaunchLevel { kProcess, kNode, kRole, kLauncher };

const char* name(LaunchLevel level);

struct HostSlots {
  std::string host;
  int slots = 0;  // GPUs or processes

  bool operator==(const HostSlots&) const = default;
};

// "field: value, from origin".
struct LaunchValue {
  std::string field;
  std::string value;
  std::string origin;

  bool operator==(const LaunchValue&) const = default;
};

struct LaunchIgnored {
  std::string variable;
  std::string value;
  std::string why;

  bool operator==(const LaunchIgnored&) const = default;
};

// The launch environment, read by the first matching row of the decision table (launch_env.h).
// Empty optionals: the environment does not say.
struct Launch {
  std::string row;
  LaunchLevel level = LaunchLevel::kProcess;

  std::optional<int> rank;
  std::optional<int> worldSize;
  std::optional<int> localRank;
  std::optional<int> localWorldSize;
  std::optional<int> nodeRank;
  std::optional<int> nodes;

  std::optional<int> processesPerNode;
  // "auto", "gpu" or "cpu" where torchrun's word stands instead of a number.
  std::string processesPerNodeWord;

  std::vector<HostSlots> hosts;  // in the order of the source

  std::optional<std::string> masterAddress;  // without brackets
  std::optional<int> masterPort;

  std::string role;  // "chief", "worker", "ps" (row tf-config), else ""
  std::optional<int> roleIndex;

  std::optional<std::string> headAddress;  // the head of a Ray cluster (row ti-ray)
  std::optional<int> headPort;

  std::vector<LaunchValue> values;
  std::vector<LaunchIgnored> ignored;
  std::vector<std::string> warnings;
  std::vector<std::string> notes;
};

// Reads the environment. Pure but for the seams (a hostfile, this host's names). Throws
// LaunchError.
Launch readLaunch(const Variables& variables, const Arguments& arguments, const LaunchSeams& seams);

// The printed table: the row, every value with its origin, what was ignored and why, warnings.
std::string describe(const Launch& launch);

// The job is known to run on more than one node.
bool hasSeveralNodes(const Launch& launch);

// `launch` as one process of a job: unchanged at level process and role; a node with one process is
// that process; anything else is an error that says to start with `taco run`.
Launch asProcess(const Launch& launch);

struct Master {
  std::string address;
  int port = 0;
  std::string origin;
};

// The rendezvous point without asking MPI: MASTER_ADDR and MASTER_PORT, else this host where the
// whole job runs on it, else the first host of a hostfile or node list, else an error that says how
// to give one.
Master requireMaster(const Launch& launch);

// True when `launch` has no master of its own and was started by an MPI: rank 0 should broadcast
// one before requireMaster() is asked.
bool wantsMasterFromMpi(const Launch& launch);

// What torch's env:// reads: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
// MASTER_PORT. `launch` must be at level process or role. Never an interface (*_SOCKET_IFNAME).
Variables torchEnvironment(const Launch& launch, const Master& master);

// Throws where `processes` are more than the hosts have slots, listing these.
void requireSlots(const Launch& launch, int processes);

}  // namespace taco
