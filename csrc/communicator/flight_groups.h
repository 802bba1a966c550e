#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/deadline.h"

namespace taco {

// One group of this process, in the flight record's words. Shared by the group and by the list of
// all, which remembers it for a while after its end.
struct FlightGroup {
  // Set once, before anybody else sees it.
  uint32_t number = 0;  // in this process, counted from 1
  std::string id;       // the same on all ranks of this group, and of no other group
  std::string name;
  int rank = 0;
  int size = 1;
  std::vector<int> globalRanks;  // of the members in the job; empty: not known
  Clock::time_point made{};

  // Relaxed, all three: for people, who look when nothing moves any more.
  std::atomic<uint64_t> begun{0};      // the highest operation that this rank has begun,
  std::atomic<uint64_t> completed{0};  // and has done
  std::atomic<uint64_t> messages{0};   // sends and receives posted

  // A failed send or receive has been written down, or need not be.
  std::atomic<bool> toldOfMessage{false};
};

// What is known of the end of a group.
struct FlightGroupEnd {
  Clock::time_point at{};
  std::optional<std::string> failure;  // empty: in order
};

// All living groups of this process, and the last kMostEnded that have ended. In a forked child:
// none.
class FlightGroups {
 public:
  static constexpr size_t kMostEnded = 64;

  static void add(const std::shared_ptr<FlightGroup>& group);  // numbers it
  // Of several ends the first counts.
  static void end(const FlightGroup& group, const std::optional<std::string>& failure);

  struct Listed {
    std::shared_ptr<const FlightGroup> group;
    std::optional<FlightGroupEnd> end;
  };
  static std::vector<Listed> all();
};

}  // namespace taco
