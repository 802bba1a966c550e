#include "launch/roll_call.h"

#include <algorithm>
#include <vector>

#include "csrc/base/format.h"
#include "launch/launch_error.h"
#include "launch/text.h"

namespace taco {
namespace {

// The keys. Each rank's counter says whether another was here before; the first of a rank writes
// who it is. The last to arrive, or the first to find a fault, writes the verdict, for which all
// wait.
std::string countKey(int rank) { return str("taco_launch/count/", rank); }
std::string memberKey(int rank) { return str("taco_launch/member/", rank); }
const char* const kWorldCount = "taco_launch/world_count";
const char* const kWorld = "taco_launch/world";
const char* const kArrived = "taco_launch/arrived";
const char* const kVerdict = "taco_launch/verdict";
const char* const kEverybodyIsHere = "complete";

constexpr size_t kMostNamed = 16;

std::string who(const Member& member) {
  return str("process ", member.processId, " on host ", inQuotes(member.host),
             member.row.empty() ? "" : str(" (launch row ", member.row, ")"));
}

std::string faultOf(RollCallStore& store, const Member& member) {
  const std::string worldSize = std::to_string(member.worldSize);
  if (store.add(kWorldCount, 1) == 1) {
    store.set(kWorld, str(worldSize, " ", "rank ", member.rank, ", ", who(member)));
  } else {
    const std::string first = store.get(kWorld);
    const size_t end = first.find(' ');
    if (first.substr(0, end) != worldSize) {
      return str("the processes of this job do not agree on the world size: it is '", worldSize,
                 "' for rank ", member.rank, ", ", who(member), ", but '", first.substr(0, end),
                 "' for ", end == std::string::npos ? "another" : first.substr(end + 1),
                 "; give every process the same number");
    }
  }
  if (store.add(countKey(member.rank), 1) == 1) {
    store.set(memberKey(member.rank), who(member));
    return "";
  }
  return str("rank ", member.rank, " is there twice: ", store.get(memberKey(member.rank)), " and ",
             who(member), "; give every process a rank of its own");
}

// After the store has lost its patience: who is missing.
std::string missingRanks(RollCallStore& store, const Member& member) {
  std::vector<std::string> missing;
  size_t count = 0;
  for (int rank = 0; rank < member.worldSize && count <= kMostNamed; ++rank) {
    if (store.add(countKey(rank), 0) > 0) continue;
    if (++count <= kMostNamed) missing.push_back(std::to_string(rank));
  }
  if (missing.empty()) return "";
  return str("of ", member.worldSize, " ranks, ", count > kMostNamed ? "these and others" : "these",
             " did not come: ", listed(missing));
}

}  // namespace

void rollCall(RollCallStore& store, const Member& member) {
  const std::string fault = faultOf(store, member);
  if (!fault.empty()) {
    store.set(kVerdict, fault);
    throw LaunchError(LaunchRule::kE3, fault);
  }
  if (store.add(kArrived, 1) == member.worldSize) {
    store.set(kVerdict, kEverybodyIsHere);
    return;
  }
  std::string verdict;
  try {
    verdict = store.get(kVerdict);
  } catch (const RollCallTimeout& timeout) {
    const std::string missing = missingRanks(store, member);
    if (missing.empty()) throw;
    throw RollCallTimeout(
        str(missing, "; look at their output and at their launcher (", timeout.what(), ")"));
  }
  if (verdict != kEverybodyIsHere) throw LaunchError(LaunchRule::kE3, verdict);
}

}  // namespace taco
