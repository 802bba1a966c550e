#pragma once

#include <string>
#include <vector>

#include "launch/launch.h"

namespace taco {

// OpenMPI's hostfile, and MPICH's: a line a host, "name slots=4" or "name:4" (or neither: one
// slot);
// '#' begins a comment; blank lines and CRLF are fine. A host on several lines has the sum of its
// slots, as mpirun counts. `origin` names the file and what named the file. What is passed over
// (max_slots apart) is told in `warnings`. Throws LaunchError: E1, E8.
std::vector<HostSlots> parseHostfile(const std::string& text, const std::string& origin,
                                     std::vector<std::string>& warnings);

}  // namespace taco
