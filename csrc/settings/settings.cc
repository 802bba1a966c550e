#include "csrc/settings/settings.h"

#include <cerrno>
#include <cstdlib>
#include <functional>

#include "csrc/base/error.h"
#include "csrc/base/format.h"

extern char** environ;

namespace taco {
namespace {

// One row of the table: everything there is to know about a variable.
struct Row {
  const char* name;
  const char* values;        // what is valid, for errors and docs
  const char* defaultValue;  // for docs
  const char* meaning;       // for docs
  bool mustAgree;            // equal on all ranks of a group
  std::function<void(const std::string&, Settings&)> parse;  // throws Bad
};

struct Bad {};  // "not one of the valid values"; readSettings makes the sentence

uint64_t parseUnsigned(const std::string& text, uint64_t least, uint64_t most) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) throw Bad{};
  errno = 0;
  const unsigned long long value = std::strtoull(text.c_str(), nullptr, 10);
  if (errno != 0 || value < least || value > most) throw Bad{};
  return value;
}

double parseRatio(const std::string& text) {
  // As people write ratios: strtod alone would take "nan", "0x1" and " 1".
  if (text.empty() || text.find_first_not_of("0123456789.eE+-") != std::string::npos) throw Bad{};
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (*end != '\0' || !(value > 0 && value <= 1)) throw Bad{};
  return value;
}

bool parseSwitch(const std::string& text) { return parseUnsigned(text, 0, 1) == 1; }

LogLevel parseLogLevel(const std::string& text) {
  if (text == "error") return LogLevel::kError;
  if (text == "warn") return LogLevel::kWarn;
  if (text == "info") return LogLevel::kInfo;
  if (text == "debug") return LogLevel::kDebug;
  throw Bad{};
}

TransportKind parseTransport(const std::string& text) {
  if (text == "tcp") return TransportKind::kTcp;
  if (text == "mpi") return TransportKind::kMpi;
  throw Bad{};
}

const std::vector<Row>& table() {
  static const std::vector<Row> rows = {
      {"LIGHT_2D_ALLREDUCE", "0 or 1", "chosen by size and grid",
       "The 2D all-reduce: reduce-scatter inside each node, all-reduce across nodes, all-gather "
       "inside each node. 0: never. 1: wherever there are several nodes and one of them has "
       "several ranks. Unset: where at least 2 nodes have at least 2 ranks.",
       true, [](const std::string& v, Settings& s) { s.allreduce2d = parseSwitch(v); }},
      {"LIGHT_INTRA_SIZE", "a whole number from 1", "what the topology proves",
       "Ranks of a 2D group (\"node\"): ranks 0..n-1 are the first, and so on; the last may be "
       "smaller. It shapes the grid only: ranks use shared memory only where they really share "
       "it.",
       true,
       [](const std::string& v, Settings& s) {
         s.intraSize = static_cast<int>(parseUnsigned(v, 1, INT32_MAX));
       }},
      {"LIGHT_HIERARCHICAL_THRESHOLD", "a whole number of bytes", "1073741824",
       "All-reduces of up to and including this many bytes may use the 2D algorithm; larger ones "
       "are flat.",
       true,
       [](const std::string& v, Settings& s) {
         s.hierarchicalThreshold = parseUnsigned(v, 0, UINT64_MAX);
       }},
      {"LIGHT_TOPK_ALLREDUCE", "0 or 1", "0",
       "1: an all-reduce across nodes sends only the elements of largest magnitude, and keeps the "
       "rest for the next time (docs/topk.md). It applies to SUM and AVG of float32, float16 and "
       "bfloat16 at or above LIGHT_TOPK_THRESHOLD; everything else stays exact.",
       true, [](const std::string& v, Settings& s) { s.topkAllreduce = parseSwitch(v); }},
      {"LIGHT_TOPK_RATIO", "a number above 0, up to 1", "0.01",
       "The part of the elements that is sent. Above the break-even with a dense all-reduce "
       "(docs/topk.md) the dense one is used.",
       true, [](const std::string& v, Settings& s) { s.topkRatio = parseRatio(v); }},
      {"LIGHT_TOPK_THRESHOLD", "a whole number of bytes", "1048576",
       "All-reduces of at least this many bytes are compressed; smaller ones are dense and exact.",
       true,
       [](const std::string& v, Settings& s) { s.topkThreshold = parseUnsigned(v, 0, UINT64_MAX); }},
      {"LIGHT_TOPK_FP16", "0 or 1", "0",
       "1: values are sent as float16, 6 bytes an element instead of 8; what the rounding loses is "
       "sent later, as everything that is not sent.",
       true, [](const std::string& v, Settings& s) { s.topkFp16 = parseSwitch(v); }},
      {"TACO_TOPK_WARMUP_STEPS", "a whole number of steps", "0",
       "With LIGHT_TOPK_ALLREDUCE=1: the first quarter of these steps is dense, in the rest the "
       "ratio falls exponentially from 1 to LIGHT_TOPK_RATIO. A step is one all-reduce of a size.",
       true, [](const std::string& v, Settings& s) { s.topkWarmupSteps = parseUnsigned(v, 0, UINT32_MAX); }},
      {"TACO_SHM", "0 or 1", "1",
       "0: shared memory is not used at all, every link goes over the network stack.", true,
       [](const std::string& v, Settings& s) { s.useShm = parseSwitch(v); }},
      {"TACO_NODE_ID", "any text", "empty",
       "Ranks with different values are never taken to be on one node, even where they could share "
       "memory. For tests, and for containers that should be kept apart. May differ between ranks.",
       false, [](const std::string& v, Settings& s) { s.nodeId = v; }},
      {"TACO_SOCKET_IFNAME", "the name of a network interface", "the one that routes to MASTER_ADDR",
       "The network interface for connections between ranks: its address is published, and a rank "
       "listens on it only. GLOO_SOCKET_IFNAME is honoured if this is unset and it names one "
       "interface. May differ between ranks.",
       false, [](const std::string& v, Settings& s) { s.socketInterface = v; }},
      {"TACO_TRANSPORT", "tcp or mpi", "tcp",
       "What carries the traffic between ranks that shared memory does not: sockets, or the MPI "
       "that started the processes (mpirun). With TACO_SHM=0 that is all traffic.",
       true, [](const std::string& v, Settings& s) { s.transport = parseTransport(v); }},
      {"TACO_MPI_LIBRARY", "the path of a libmpi", "the one of the mpirun that started the process",
       "The MPI library that is opened for TACO_TRANSPORT=mpi and for a rendezvous without "
       "MASTER_ADDR under mpirun. May differ between ranks.",
       false, [](const std::string& v, Settings& s) { s.mpiLibrary = v; }},
      {"TACO_LOG", "error, warn, info or debug", "warn",
       "How much is written to stderr. info prints once per group: the grid, the links and why. May "
       "differ between ranks.",
       false, [](const std::string& v, Settings& s) { s.logLevel = parseLogLevel(v); }},
      {"TACO_DUMP_DIR", "a folder, or none", "`taco-dumps-<user id>` in the folder for temporary files",
       "Where a process writes its flight record (its last 2,000 operations) when a group fails, and "
       "on `torch_taco.dump()`; `taco explain-hang` reads the files of all ranks. none: nothing is "
       "written on a failure. May differ between ranks.",
       false, [](const std::string& v, Settings& s) { s.dumpFolder = v; }},
      // Read by the launch helper (launch/), before there is a group.
      {"TACO_LAUNCHER", "the name of a row of the table in docs/launching.md",
       "the first that matches",
       "Which launcher's variables count where several launchers have left theirs. May differ "
       "between ranks.",
       false, [](const std::string&, Settings&) {}},
      {"TACO_RANK", "a whole number from 0", "what the launcher says",
       "The rank of this process, for a launcher of one's own; together with TACO_WORLD_SIZE. "
       "Differs between ranks.",
       false,
       [](const std::string& v, Settings&) { parseUnsigned(v, 0, INT32_MAX); }},
      {"TACO_WORLD_SIZE", "a whole number from 1", "what the launcher says",
       "How many processes the job has; together with TACO_RANK.", false,
       [](const std::string& v, Settings&) { parseUnsigned(v, 1, INT32_MAX); }},
      {"TACO_LOCAL_RANK", "a whole number from 0", "unset",
       "The index of this process on its host, with TACO_RANK: which GPU it takes. Differs between "
       "ranks.",
       false,
       [](const std::string& v, Settings&) { parseUnsigned(v, 0, INT32_MAX); }},
      {"TACO_LOCAL_WORLD_SIZE", "a whole number from 1", "unset",
       "How many processes this host has, with TACO_RANK. May differ between ranks.", false,
       [](const std::string& v, Settings&) { parseUnsigned(v, 1, INT32_MAX); }},
      {"TACO_ROLE", "chief, worker or ps", "set by `taco run`",
       "What the script is in a TF_CONFIG cluster. `taco run` sets it for the script; the backend "
       "does not read it. May differ between ranks.",
       false, [](const std::string&, Settings&) {}},
  };
  return rows;
}

bool isOurs(const std::string& name) {
  return name.rfind("LIGHT_", 0) == 0 || name.rfind("TACO_", 0) == 0;
}

std::string validNames() {
  std::string names;
  for (const Row& row : table()) names += str(names.empty() ? "" : ", ", row.name);
  return names;
}

}  // namespace

Settings readSettings(const std::map<std::string, std::string>& environment) {
  Settings settings;
  for (const auto& [name, value] : environment) {
    if (!isOurs(name)) continue;
    const Row* found = nullptr;
    for (const Row& row : table()) {
      if (name == row.name) found = &row;
    }
    if (found == nullptr) {
      throw Error(ErrorCode::kInvalidSettings,
                  str("the environment variable ", name, " (value '", value,
                      "') is not a setting of this version of TACO; the valid ones are ",
                      validNames(), ": correct its name or unset it"));
    }
    if (value.empty()) continue;  // as unset
    try {
      found->parse(value, settings);
    } catch (const Bad&) {
      throw Error(ErrorCode::kInvalidSettings,
                  str("the environment variable ", name, " has the value '", value,
                      "', but must be ", found->values));
    }
  }
  if (settings.socketInterface.empty()) {
    // Gloo takes one name; a list or a pattern is another library's syntax and says nothing to us.
    const auto gloo = environment.find("GLOO_SOCKET_IFNAME");
    if (gloo != environment.end() &&
        gloo->second.find_first_of(",^=") == std::string::npos) {
      settings.socketInterface = gloo->second;
    }
  }
  return settings;
}

std::map<std::string, std::string> processEnvironment() {
  std::map<std::string, std::string> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) environment[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return environment;
}

std::string validValues(const std::string& name) {
  for (const Row& row : table()) {
    if (name == row.name) return row.values;
  }
  return "";
}

std::map<std::string, std::string> mustAgree(
    const std::map<std::string, std::string>& environment) {
  std::map<std::string, std::string> values;
  for (const Row& row : table()) {
    if (!row.mustAgree) continue;
    const auto found = environment.find(row.name);
    values[row.name] = found == environment.end() ? "" : found->second;
  }
  return values;
}

std::string settingsMarkdown() {
  std::string text =
      "# Settings\n\n"
      "<!-- Written by `make docs` from the table in csrc/settings/settings.cc: change it there. "
      "-->\n\n"
      "Environment variables, read when a process group is made. An empty value counts as unset. An "
      "unknown name that\nbegins with `LIGHT_` or `TACO_`, or a malformed value, is an error. Unless "
      "said otherwise a variable must have the\nsame value on all ranks of a group; ranks that "
      "differ get an error that names both.\n\n"
      "| variable | valid values | default | meaning |\n|---|---|---|---|\n";
  for (const Row& row : table()) {
    text += str("| `", row.name, "` | ", row.values, " | ", row.defaultValue, " | ", row.meaning,
                " |\n");
  }
  return text;
}

}  // namespace taco
