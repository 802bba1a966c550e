#pragma once

#include <memory>
#include <optional>
#include <string>

#include "csrc/base/error.h"
#include "csrc/communicator/flight_groups.h"
#include "csrc/settings/settings.h"

namespace taco {

// Where the flight record of this process is written: TACO_DUMP_DIR, else a folder of this user's
// own among the temporary files; empty where TACO_DUMP_DIR is "none".
std::optional<std::string> flightFolder(const Settings& settings);

// Writes the flight record of this process into a file of its own in `folder`, which is made if it
// is not there (mode 0700), and returns the file's path. The file (mode 0600) replaces an earlier
// one of this process, at once and whole. Throws Error(kSystem). From any thread, at any time.
std::string dumpFlightRecord(const std::string& folder, const std::string& reason);

// The same on the way of a failure: never throws, says in the log where the file is. Without a
// folder it does nothing.
void dumpAfterFailure(const std::optional<std::string>& folder, const FlightGroup& group,
                      const Error& why) noexcept;

}  // namespace taco
