#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "csrc/communicator/flight_groups.h"
#include "csrc/communicator/flight_record.h"

namespace taco {

// All that one process writes down.
struct FlightDump {
  std::string host;
  int pid = 0;
  int rank = 0;  // of the process in its job, or in its first group
  std::string reason;
  std::vector<FlightGroups::Listed> groups;
  std::vector<FlightOperation> operations;
  uint64_t forgotten = 0;
  Clock::time_point now{};                       // the same moment by both clocks:
  std::chrono::system_clock::time_point wall{};  // wall times are made of the difference
};

// The dump as JSON (docs/troubleshooting.md has the fields); always valid UTF-8, whatever the texts
// in it are.
std::string toJson(const FlightDump& dump);

}  // namespace taco
