#pragma once

#include <map>
#include <string>
#include <vector>

#include "csrc/base/deadline.h"
#include "csrc/settings/settings.h"
#include "csrc/topology/grid.h"
#include "csrc/topology/key_value_store.h"

namespace taco {

// What the ranks of a group know about each other when they have met; the same on all of them but
// for the fields that say "this".
struct Topology {
  Grid grid;
  std::vector<std::string> hosts;      // by rank: host name and pid, for messages
  std::vector<std::vector<std::string>> addresses;  // by lane, by rank: where its transport listens
  std::string secret;                  // 16 random bytes made by rank 0, unknown to strangers
  bool oversubscribed = false;         // more ranks on this host than CPUs they may use
  std::string memoryNote;              // why memory is not shared where one would expect it
};

struct MeetingRequest {
  int rank = 0;
  int size = 1;
  std::vector<std::string> addresses;  // this rank's, by lane
};

// Every rank publishes who it is; rank 0 collects all and publishes one table: size sets and
// 2 * size gets in all, never size * size. Then every rank says whose proof it could really read
// (node_proof.h), and rank 0 publishes the grid.
// Throws Error, on all ranks: kTimeout naming the ranks that did not come; kInvalidSettings if
// variables that must agree do not.
Topology meet(const MeetingRequest& request, KeyValueStore& store, const Settings& settings,
              const std::map<std::string, std::string>& environment, const Deadline& deadline);

}  // namespace taco
