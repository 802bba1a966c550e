#pragma once

// The product of everything that may go wrong with a rank, and a small subset that covers it: how a
// rank ends x where it is at that moment x which rank it is x who shares memory with whom.

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/fault_point.h"
#include "csrc/base/format.h"
#include "tests/csrc/communicator/group.h"

namespace taco::testing {

constexpr size_t kSmall = 100;         // elements: one step on every link
constexpr size_t kLarge = 3 << 18;     // 3 MiB: several chunks in shared memory, 16 pieces on a mesh

// One operation that all ranks call again and again, until it fails.
struct FaultOperation {
  const char* name;  // as errors name it
  std::function<void(Communicator&, int victim)> run;
};

inline void runCollective(Communicator& rank, const Body& body,
                          Mode mode = Mode::kSync) {
  runOn(rank, body, Millis(0), mode);
}

// Every rank exchanges a message with the victim, so that everybody waits for it.
inline void exchangeWithVictim(Communicator& self, int victim, size_t count) {
  std::vector<TicketPtr> tickets;
  for (int peer = 0; peer < self.size(); ++peer) {
    if (peer == self.rank() || (self.rank() != victim && peer != victim)) continue;
    // An exception may leave the messages pending: they keep their own memory alive.
    const auto in = std::make_shared<std::vector<float>>(count);
    const auto out = std::make_shared<std::vector<float>>(count, 1.0f);
    tickets.push_back(self.receive(view(*in), peer, 1, Millis(0), in));
    tickets.push_back(self.send(view(*out), peer, 1, Millis(0), out));
  }
  std::optional<Error> first;
  for (const TicketPtr& ticket : tickets) {
    expect(ticket->wait(Deadline::after(Millis(60000))), "a message never ended");
    if (!first) first = ticket->error();
  }
  if (first) throw *first;
}

inline const std::vector<FaultOperation>& faultOperations() {
  auto gathered = [](Collectives& c, size_t count, auto call) {
    std::vector<float> mine(count, 1.0f);
    std::vector<float> all(count * static_cast<size_t>(c.size()));
    std::vector<Buffer> parts;
    std::vector<ConstBuffer> constParts;
    for (int r = 0; r < c.size(); ++r) {
      parts.push_back(view(all).slice(static_cast<size_t>(r) * count, count));
      constParts.push_back(parts.back());
    }
    call(view(mine), parts, constParts);
  };
  static const std::vector<FaultOperation> all = {
      {"all_reduce", [](Communicator& r, int) {
         runCollective(r, [](Collectives& c) { allReduceOnes(c, kSmall); });
       }},
      {"all_reduce", [](Communicator& r, int) {
         runCollective(r, [](Collectives& c) { allReduceOnes(c, kLarge); });
       }},
      {"all_reduce", [](Communicator& r, int) {
         runCollective(r, [](Collectives& c) { allReduceOnes(c, kLarge); }, Mode::kAsync);
       }},
      {"all_reduce", [](Communicator& r, int) {
         std::vector<float> data(kLarge, 1.0f);
         runCollective(r, [&](Collectives& c) {
           c.allReduce(view(data), {}, {BufferIdentity{1, 0}, TopkRequest{}});
         });
       }},
      {"broadcast", [](Communicator& r, int) {
         std::vector<float> data(kSmall);
         runCollective(r, [&](Collectives& c) { c.broadcast(view(data), 0); });
       }},
      {"broadcast", [](Communicator& r, int) {
         std::vector<float> data(kLarge);
         runCollective(r, [&](Collectives& c) { c.broadcast(view(data), 0); });
       }},
      {"reduce", [](Communicator& r, int) {
         std::vector<float> data(kLarge);
         runCollective(r, [&](Collectives& c) { c.reduce(view(data), view(data), {}, 0); });
       }},
      {"all_gather", [gathered](Communicator& r, int) {
         runCollective(r, [&](Collectives& c) {
           gathered(c, kLarge / 3, [&](Buffer mine, auto& parts, auto&) { c.allGather(mine, parts); });
         });
       }},
      {"gather", [gathered](Communicator& r, int) {
         runCollective(r, [&](Collectives& c) {
           gathered(c, kLarge / 3, [&](Buffer mine, auto parts, auto&) {
             if (c.rank() != 0) parts.clear();
             c.gather(mine, parts, 0);
           });
         });
       }},
      {"scatter", [gathered](Communicator& r, int) {
         runCollective(r, [&](Collectives& c) {
           gathered(c, kLarge / 3, [&](Buffer mine, auto&, auto parts) {
             if (c.rank() != 0) parts.clear();
             c.scatter(parts, mine, 0);
           });
         });
       }},
      {"reduce_scatter", [gathered](Communicator& r, int) {
         runCollective(r, [&](Collectives& c) {
           gathered(c, kLarge / 3,
                    [&](Buffer mine, auto&, auto& parts) { c.reduceScatter(parts, mine, {}); });
         });
       }},
      {"all_to_all", [gathered](Communicator& r, int) {
         runCollective(r, [&](Collectives& c) {
           gathered(c, kLarge / 3, [&](Buffer, auto& parts, auto&) {
             std::vector<float> from(kLarge / 3 * static_cast<size_t>(c.size()));
             std::vector<ConstBuffer> sends;
             for (const Buffer& part : parts) {
               sends.push_back(view(from).slice(sends.size() * part.count, part.count));
             }
             c.allToAll(sends, parts);
           });
         });
       }},
      {"barrier", [](Communicator& r, int) {
         runCollective(r, [](Collectives& c) { c.barrier(); });
       }},
      {"of 400 bytes", [](Communicator& r, int victim) { exchangeWithVictim(r, victim, kSmall); }},
      {"of 3145728 bytes",
       [](Communicator& r, int victim) { exchangeWithVictim(r, victim, kLarge); }},
  };
  return all;
}
// Their places in the list above.
enum : size_t {
  kAllReduceSmall, kAllReduceLarge, kAllReduceAsync, kAllReduceTopk, kBroadcastSmall, kBroadcastLarge, kReduce,
  kAllGather, kGather, kScatter, kReduceScatter, kAllToAll, kBarrier, kMessageSmall, kMessageLarge
};

// Who shares memory: "1x3" one node, "2x2" two nodes of two, "3x1" three nodes.
enum class FaultLayout { k1x3, k2x2, k3x1 };
inline const char* nameOf(FaultLayout layout) {
  return layout == FaultLayout::k1x3 ? "1x3" : layout == FaultLayout::k2x2 ? "2x2" : "3x1";
}
inline int ranksOf(FaultLayout layout) { return layout == FaultLayout::k2x2 ? 4 : 3; }
inline Environment environmentOf(FaultLayout layout, int rank) {
  Environment environment{{"MASTER_ADDR", "127.0.0.1"}};
  if (layout == FaultLayout::k2x2) environment["TACO_NODE_ID"] = str(rank / 2);
  if (layout == FaultLayout::k3x1) environment["TACO_NODE_ID"] = str(rank);
  return environment;
}

enum class Victim { kRank0, kLeader, kLast };  // kLeader: the first rank of the second node
inline int rankOf(Victim victim, FaultLayout layout) {
  switch (victim) {
    case Victim::kRank0: return 0;
    case Victim::kLeader: return ranksOf(layout) / 2;
    case Victim::kLast: return ranksOf(layout) - 1;
  }
  return 0;
}

// When the fault point is armed.
enum class Stage { kBeforeInit, kInit, kOperation, kDestroy };

struct FaultPlace {
  Stage stage;
  const char* point;
  int nth;
  size_t operation;  // what the ranks do
  bool (*exists)(FaultLayout layout, Victim victim);
};

inline std::vector<FaultPlace> faultPlaces() {
  using L = FaultLayout;
  const auto anywhere = [](L, Victim) { return true; };
  const auto sharing = [](L layout, Victim) { return layout != L::k3x1; };
  // The others' flat links are the network's; 2x2 shares memory in a 2D all-reduce only.
  const auto oneNode = [](L layout, Victim) { return layout == L::k1x3; };
  const auto several = [](L layout, Victim) { return layout != L::k1x3; };
  const auto grid = [](L layout, Victim) { return layout == L::k2x2; };
  const auto sharingMaker = [](L layout, Victim victim) {
    return layout != L::k3x1 &&
           (victim == Victim::kRank0 || (layout == L::k2x2 && victim == Victim::kLeader));
  };
  std::vector<FaultPlace> places = {
      {Stage::kBeforeInit, "", 1, kAllReduceSmall, anywhere},
      {Stage::kInit, "init.proved", 1, kAllReduceSmall, anywhere},
      {Stage::kInit, "init.known", 1, kAllReduceSmall, anywhere},
      {Stage::kInit, "init.met", 1, kAllReduceLarge, anywhere},
      {Stage::kInit, "init.segment_made", 1, kAllReduceSmall, sharingMaker},
      {Stage::kInit, "init.attaching", 1, kAllReduceSmall, sharing},
      {Stage::kInit, "init.linked", 1, kAllReduceLarge, anywhere},
      {Stage::kDestroy, "destroy.begun", 1, kAllReduceSmall, anywhere},
      {Stage::kDestroy, "destroy.between", 1, kAllReduceLarge, anywhere},
      {Stage::kDestroy, "destroy.left", 1, kBarrier, anywhere},
      {Stage::kOperation, "2d.scattered", 1, kAllReduceLarge, grid},
      {Stage::kOperation, "2d.scattered", 3, kAllReduceAsync, grid},
      {Stage::kOperation, "2d.crossed", 2, kAllReduceLarge, grid},
      {Stage::kOperation, "topk.scattered", 1, kAllReduceTopk, several},
      {Stage::kOperation, "topk.selected", 2, kAllReduceTopk, several},
      {Stage::kOperation, "topk.crossed", 1, kAllReduceTopk, several},
      {Stage::kOperation, "p2p.send", 1, kMessageSmall, anywhere},
      {Stage::kOperation, "p2p.receive", 3, kMessageSmall, anywhere},
      {Stage::kOperation, "p2p.requested", 1, kMessageLarge, anywhere},
      {Stage::kOperation, "p2p.cleared", 2, kMessageLarge, anywhere},
      {Stage::kOperation, "p2p.piece_sent", 2, kMessageLarge, anywhere},
      {Stage::kOperation, "p2p.piece_arrived", 2, kMessageLarge, anywhere},
  };
  for (size_t operation = kAllReduceSmall; operation <= kBarrier; ++operation) {
    const bool steps = operation != kAllReduceSmall && operation != kBroadcastSmall && operation != kBarrier;
    const bool is2d = operation == kAllReduceLarge || operation == kAllReduceAsync ||
                      operation == kAllReduceTopk;
    const auto inMemory = is2d ? +sharing : +oneNode;
    for (const char* point : {"shm.shown", "shm.arrived", "shm.taken"}) {
      places.push_back({Stage::kOperation, point, 1, operation, inMemory});
      if (steps) places.push_back({Stage::kOperation, point, 3, operation, inMemory});
    }
    for (const char* point : {"mesh.posted", "mesh.done"}) {
      places.push_back({Stage::kOperation, point, 1, operation, several});
      if (steps) places.push_back({Stage::kOperation, point, 3, operation, several});
    }
  }
  return places;
}

struct FaultCase {
  FaultPlace place;
  FaultAction kind;
  Victim victim;
  FaultLayout layout;

  // Nobody notices before a deadline passes.
  bool waits() const {
    return kind == FaultAction::kStop || place.stage == Stage::kBeforeInit ||
           place.stage == Stage::kInit;
  }
  std::string describe() const {
    const char* const kinds[] = {"SIGKILL", "SIGSTOP", "exit(0)", "exception", "SIGSEGV"};
    return str(nameOf(layout), ", rank ", rankOf(victim, layout), ", ",
               kinds[static_cast<size_t>(kind)], " at ",
               place.stage == Stage::kBeforeInit ? "no point: before init" : place.point, " #",
               place.nth, ", operation ", place.operation, " (",
               faultOperations()[place.operation].name, ")");
  }
};

inline std::vector<FaultCase> allFaultCases() {
  std::vector<FaultCase> cases;
  for (const FaultPlace& place : faultPlaces()) {
    for (int kind = 0; kind < 5; ++kind) {
      for (const Victim victim : {Victim::kRank0, Victim::kLeader, Victim::kLast}) {
        for (const auto layout : {FaultLayout::k1x3, FaultLayout::k2x2, FaultLayout::k3x1}) {
          if (!place.exists(layout, victim)) continue;
          cases.push_back({place, static_cast<FaultAction>(kind), victim, layout});
        }
      }
    }
  }
  return cases;
}

// A part of `all` in which every pair of values that occurs there occurs at least once (a greedy
// choice).
inline std::vector<FaultCase> coveringCases(const std::vector<FaultCase>& all) {
  std::vector<std::vector<std::string>> pairs;
  std::set<std::string> open;
  for (const FaultCase& one : all) {
    const std::vector<std::string> values = {
        one.place.point,
        str("#", one.place.nth),
        str("operation ", one.place.operation),
        str("kind ", static_cast<int>(one.kind)),
        str("victim ", static_cast<int>(one.victim)),
        nameOf(one.layout)};
    pairs.emplace_back();
    for (size_t a = 0; a < values.size(); ++a) {
      for (size_t b = 0; b < a; ++b) pairs.back().push_back(values[a] + " " + values[b]);
    }
    open.insert(pairs.back().begin(), pairs.back().end());
  }
  std::vector<FaultCase> chosen;
  while (!open.empty()) {
    size_t best = 0;
    size_t most = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      const auto news = static_cast<size_t>(std::count_if(
          pairs[i].begin(), pairs[i].end(), [&](const auto& pair) { return open.count(pair) > 0; }));
      if (news > most) best = i, most = news;
    }
    for (const auto& pair : pairs[best]) open.erase(pair);
    chosen.push_back(all[best]);
  }
  return chosen;
}

}  // namespace taco::testing
