#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "csrc/base/deadline.h"

namespace taco {

struct MpiMaster {
  std::string host;  // numeric, as the other ranks reach it
  uint16_t port = 0;
};

// The address under which the others reach the rank `master` of `hosts` and `networks` (what every
// rank thinks its own is, and its localNetworkId()), on which this runs: loopback if all share one
// network, else the local end of the route to the first that does not.
std::string chooseMasterHost(const std::vector<std::string>& hosts,
                             const std::vector<std::string>& networks, size_t master,
                             const std::string& interfaces);

// Collective over all processes of the mpirun: the one that listens somewhere gives its `port` (the
// others 0), and everybody learns where that is. Throws Error as MpiJob::join() does, and on all
// processes kInvalidSettings if one cannot take part.
MpiMaster meetThroughMpi(const std::map<std::string, std::string>& environment, uint16_t port,
                         const Deadline& deadline);

}  // namespace taco
