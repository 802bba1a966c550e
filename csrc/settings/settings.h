#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/log.h"

namespace taco {

enum class TransportKind { kTcp, kMpi };

// Every environment variable that TACO reads, parsed. Read once when a group is made and passed
// down; nothing else in csrc/ looks at the environment. The table behind it (settings.cc) also
// prints docs/settings.md.
struct Settings {
  std::optional<int> intraSize;                // LIGHT_INTRA_SIZE
  std::optional<bool> allreduce2d;             // LIGHT_2D_ALLREDUCE
  uint64_t hierarchicalThreshold = 1073741824; // LIGHT_HIERARCHICAL_THRESHOLD, bytes
  bool topkAllreduce = false;                  // LIGHT_TOPK_ALLREDUCE
  double topkRatio = 0.01;                     // LIGHT_TOPK_RATIO, (0, 1]
  uint64_t topkThreshold = 1048576;            // LIGHT_TOPK_THRESHOLD, bytes
  bool topkFp16 = false;                       // LIGHT_TOPK_FP16
  uint64_t topkWarmupSteps = 0;                // TACO_TOPK_WARMUP_STEPS
  bool useShm = true;                          // TACO_SHM
  std::string nodeId;                          // TACO_NODE_ID
  std::string socketInterface;                 // TACO_SOCKET_IFNAME, GLOO_SOCKET_IFNAME
  TransportKind transport = TransportKind::kTcp;  // TACO_TRANSPORT
  std::string mpiLibrary;                      // TACO_MPI_LIBRARY
  LogLevel logLevel = LogLevel::kWarn;         // TACO_LOG
  std::string dumpFolder;                      // TACO_DUMP_DIR; empty: the default one
};

// Parses `environment` (a map, so that tests need no setenv). Throws Error(kInvalidSettings) that
// names the variable, its value and what is valid; an unknown LIGHT_* or TACO_* is an error that
// lists the known ones.
Settings readSettings(const std::map<std::string, std::string>& environment);

// This process's environment, as a map.
std::map<std::string, std::string> processEnvironment();

// What the table says of a variable's values ("0 or 1").
std::string validValues(const std::string& name);

// name -> raw value of the variables that must be equal on every rank of a group ("" = unset).
std::map<std::string, std::string> mustAgree(const std::map<std::string, std::string>& environment);

// The whole of docs/settings.md.
std::string settingsMarkdown();

}  // namespace taco
