#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/address.h"

namespace taco {

// One task of a TensorFlow cluster.
struct TfTask {
  std::string role;  // "chief", "worker", "ps"
  int index = 0;     // within its role
  Address address;

  bool operator==(const TfTask&) const = default;
};

// TF_CONFIG as ranks: the chief, the workers and then the parameter servers, each in the order of
// their lists. Rank 0 is the chief, or worker 0; it is the master.
struct TfCluster {
  std::vector<TfTask> tasks;  // by rank
  int rank = 0;               // of this task

  // The roles in this cluster, for messages: "2 worker, 2 ps".
  std::string summary() const;
};

// Nothing when TF_CONFIG describes no cluster ("{}"), as a single TensorFlow process has it. Throws
// LaunchError: E1 what is no JSON or not of this form, E2 an index outside its list, E3 two tasks
// with one address, E8 no address.
std::optional<TfCluster> parseTfConfig(const std::string& text);

}  // namespace taco
