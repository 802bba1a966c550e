#include "csrc/topology/topology.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <set>

#include "csrc/base/error.h"
#include "csrc/base/fault_point.h"
#include "csrc/base/format.h"
#include "csrc/base/process_id.h"
#include "csrc/topology/fields.h"
#include "csrc/topology/host_cpus.h"
#include "csrc/topology/node_proof.h"

namespace taco {
namespace {

constexpr int kSecretBytes = 16;

Error damaged(const std::string& what) {
  return Error(ErrorCode::kPeerFailed, what + ": do all ranks run the same version of torch-taco?");
}

// What one rank tells the others.
struct Identity {
  std::string host;  // for messages
  std::string bootId;
  std::string nodeId;     // TACO_NODE_ID
  std::string proofPath;  // empty: memory cannot be shared with this rank,
  std::string proofToken;
  std::string proofWhyNot;  // and why
  std::string affinity;
  std::string cpuLimit;
  std::string settings;   // packed name, value, name, value ... of what must agree
  std::string addresses;  // packed

  std::string packed() const {
    return pack({host, bootId, nodeId, proofPath, proofToken, proofWhyNot, affinity, cpuLimit,
                 settings, addresses});
  }
  static Identity unpacked(const std::string& text) {
    const std::vector<std::string> f = unpack(text);
    if (f.size() != 10) {
      throw damaged(str("a rank's record in the store has ", f.size(), " fields instead of 10"));
    }
    return {f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7], f[8], f[9]};
  }
};

std::string packSettings(const std::map<std::string, std::string>& settings) {
  std::vector<std::string> fields;
  for (const auto& [name, value] : settings) {
    fields.push_back(name);
    fields.push_back(value);
  }
  return pack(fields);
}

// Empty, or the sentence that all ranks throw.
std::string disagreement(const std::vector<Identity>& identities) {
  const std::vector<std::string> first = unpack(identities[0].settings);
  for (size_t rank = 1; rank < identities.size(); ++rank) {
    const std::vector<std::string> other = unpack(identities[rank].settings);
    for (size_t i = 0; i < std::max(first.size(), other.size()); i += 2) {
      if (i + 1 >= std::min(first.size(), other.size()) || first[i] != other[i]) {
        throw damaged(str("rank ", rank, " knows other settings than rank 0"));
      }
      if (first[i + 1] == other[i + 1]) continue;
      auto shown = [](const std::string& value) {
        return value.empty() ? std::string("not set") : "'" + value + "'";
      };
      return str("the environment variable ", first[i], " differs between ranks: it is ",
                 shown(first[i + 1]), " on rank 0 (", identities[0].host, ") and ",
                 shown(other[i + 1]), " on rank ", rank, " (", identities[rank].host,
                 "); set it to one value on all ranks");
    }
  }
  return "";
}

// Rank 0 answers for everyone: "ok" and a record, or "error", the code and the sentence.
std::string okAnswer(const std::string& record) { return pack({"ok", record}); }
std::string errorAnswer(const Error& error) {
  return pack({"error", str(static_cast<int>(error.code())), error.what()});
}
std::string readAnswer(const std::string& text) {
  const std::vector<std::string> fields = unpack(text);
  if (fields.size() == 2 && fields[0] == "ok") return fields[1];
  if (fields.size() == 3 && fields[0] == "error") {
    for (const ErrorCode code : {ErrorCode::kInvalidSettings, ErrorCode::kTimeout}) {
      if (fields[1] == str(static_cast<int>(code))) throw Error(code, fields[2]);
    }
    throw Error(ErrorCode::kPeerFailed, fields[2]);
  }
  throw Error(ErrorCode::kPeerFailed, "rank 0's answer in the store is damaged");
}

// One round: everybody tells rank 0 something, rank 0 makes one answer of all of it.
template <typename MakeAnswer>
std::string round(const char* what, const MeetingRequest& request, KeyValueStore& store,
                  const std::string& mine, const Deadline& deadline, MakeAnswer makeAnswer) {
  const std::string answerKey = str(what, "/answer");
  if (request.rank != 0) {
    store.set(str(what, "/", request.rank), mine);
    try {
      // Rank 0 gives up at its own deadline and then says who is missing: wait a little longer.
      const Deadline patient =
          deadline.isNever()
              ? deadline
              : Deadline::after(std::chrono::duration_cast<Millis>(
                                    deadline.remaining(std::chrono::hours(24 * 3650))) +
                                Millis(1000));
      return readAnswer(store.get(answerKey, patient));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kTimeout ||
          std::string(error.what()).find("did not come") != std::string::npos) {
        throw;
      }
      throw Error(
          ErrorCode::kTimeout,
          str("making the group Timed out after ", deadline.budget().count(),
              " ms: rank 0 did not come (this is rank ", request.rank, " of ", request.size, ")"),
          0);
    }
  }
  std::vector<std::string> all{mine};
  std::string missing;
  for (int rank = 1; rank < request.size; ++rank) {
    try {
      // Once somebody is missing, the others are only asked whether they are there.
      all.push_back(
          store.get(str(what, "/", rank), missing.empty() ? deadline : Deadline::after(Millis(1))));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kTimeout) throw;
      missing += str(missing.empty() ? "" : ", ", rank);
    }
  }
  std::string answer;
  try {
    if (!missing.empty()) {
      throw Error(ErrorCode::kTimeout,
                  str("making the group Timed out after ", deadline.budget().count(),
                      " ms: rank(s) ", missing, " of ", request.size, " did not come"));
    }
    answer = okAnswer(makeAnswer(all));
  } catch (const Error& error) {
    answer = errorAnswer(error);
  }
  store.set(answerKey, answer);
  return readAnswer(answer);
}

// Are more ranks of this group on this host than CPUs that they may use? A rank bound to one core
// sees a mask of one, so the union of all masks counts, capped by the tightest quota.
bool isOversubscribed(const std::vector<Identity>& identities, const Identity& mine) {
  std::set<int> cpus;
  int ranks = 0;
  int limit = 0;
  for (const Identity& other : identities) {
    if (other.bootId != mine.bootId) continue;
    ++ranks;
    cpus.merge(parseCpuList(other.affinity));
    const int theirs = std::atoi(other.cpuLimit.c_str());
    if (theirs > 0 && (limit == 0 || theirs < limit)) limit = theirs;
  }
  const int usable =
      limit > 0 ? std::min(limit, static_cast<int>(cpus.size())) : static_cast<int>(cpus.size());
  return ranks > usable;
}

bool mayShare(const Identity& a, const Identity& b) {
  return a.bootId == b.bootId && a.nodeId == b.nodeId && !a.proofPath.empty() &&
         !b.proofPath.empty();
}

// The lowest rank whose proof is really readable here; itself if there is none below.
int lowestSharing(int rank, const std::vector<Identity>& identities) {
  const Identity& mine = identities[static_cast<size_t>(rank)];
  for (int other = 0; other < rank; ++other) {
    const Identity& theirs = identities[static_cast<size_t>(other)];
    if (mayShare(mine, theirs) && NodeProof::holds(theirs.proofPath, theirs.proofToken)) {
      return other;
    }
  }
  return rank;
}

}  // namespace

Topology meet(const MeetingRequest& request, KeyValueStore& store, const Settings& settings,
              const std::map<std::string, std::string>& environment, const Deadline& deadline) {
  std::unique_ptr<NodeProof> proof;
  if (settings.useShm && request.size > 1) proof = std::make_unique<NodeProof>();

  Identity mine;
  mine.host = str(hostName(), " pid ", ::getpid());
  mine.bootId = bootId();
  mine.nodeId = settings.nodeId;
  mine.affinity = affinityList();
  mine.cpuLimit = str(cgroupCpuLimit());
  mine.settings = packSettings(mustAgree(environment));
  mine.addresses = pack(request.addresses);
  if (proof) {
    mine.proofPath = proof->path();
    mine.proofToken = proof->token();
    mine.proofWhyNot = proof->whyNot();
  } else if (!settings.useShm) {
    mine.proofWhyNot = "TACO_SHM=0";
  }

  faultPoint("init.proved");
  std::vector<Identity> identities;
  Topology topology;
  if (request.size == 1) {
    identities.push_back(mine);
  } else {
    const std::string table =
        round("identity", request, store, mine.packed(), deadline,
              [&](const std::vector<std::string>& all) {
                std::vector<Identity> unpackedAll;
                for (const std::string& one : all) unpackedAll.push_back(Identity::unpacked(one));
                const std::string trouble = disagreement(unpackedAll);
                if (!trouble.empty()) throw Error(ErrorCode::kInvalidSettings, trouble);
                for (size_t rank = 0; rank < unpackedAll.size(); ++rank) {
                  if (unpack(unpackedAll[rank].addresses).size() != request.addresses.size()) {
                    throw damaged(str("rank ", rank, " has another number of lanes than rank 0"));
                  }
                }
                return pack({randomBytes(kSecretBytes), pack(all)});
              });
    const std::vector<std::string> fields = unpack(table);
    if (fields.size() != 2 || fields[0].size() != kSecretBytes) {
      throw damaged("rank 0's table in the store is no table");
    }
    topology.secret = fields[0];
    for (const std::string& one : unpack(fields[1])) identities.push_back(Identity::unpacked(one));
    if (identities.size() != static_cast<size_t>(request.size)) {
      throw damaged(str("rank 0's table has ", identities.size(), " ranks, but this is rank ",
                        request.rank, " of ", request.size));
    }
  }

  std::vector<int> memoryOfRank(identities.size());
  for (size_t r = 0; r < identities.size(); ++r) memoryOfRank[r] = static_cast<int>(r);
  // A second round only where it could find anything; all ranks see the same table.
  bool anyPair = false;
  for (size_t a = 0; a < identities.size() && !anyPair; ++a) {
    for (size_t b = a + 1; b < identities.size() && !anyPair; ++b) {
      anyPair = mayShare(identities[a], identities[b]);
    }
  }
  faultPoint("init.known");
  if (anyPair) {
    const std::string memory =
        round("memory", request, store, str(lowestSharing(request.rank, identities)), deadline,
              [](const std::vector<std::string>& all) { return pack(all); });
    const std::vector<std::string> lowest = unpack(memory);
    if (lowest.size() != identities.size()) {
      throw damaged(str("rank 0 says which memory ", lowest.size(), " ranks share, but there are ",
                        identities.size()));
    }
    for (size_t r = 0; r < lowest.size(); ++r) {
      size_t other = 0;
      const char* const end = lowest[r].data() + lowest[r].size();
      const auto [stop, trouble] = std::from_chars(lowest[r].data(), end, other);
      if (trouble != std::errc() || stop != end || other > r) {
        throw damaged(str("rank ", r, " shares memory with rank '", lowest[r], "'"));
      }
      // The one it read may itself stand behind a lower one.
      memoryOfRank[r] = other < r ? memoryOfRank[other] : static_cast<int>(r);
    }
  }
  topology.grid = Grid::make(memoryOfRank, settings.intraSize.value_or(0));
  topology.oversubscribed = isOversubscribed(identities, mine);
  topology.memoryNote = mine.proofWhyNot;
  topology.addresses.resize(request.addresses.size());
  for (const Identity& one : identities) {
    topology.hosts.push_back(one.host);
    const std::vector<std::string> byLane = unpack(one.addresses);
    if (byLane.size() != topology.addresses.size()) {
      throw damaged("a rank has another number of lanes than this one");
    }
    for (size_t lane = 0; lane < topology.addresses.size(); ++lane) {
      topology.addresses[lane].push_back(byLane[lane]);
    }
  }
  return topology;
}

}  // namespace taco
