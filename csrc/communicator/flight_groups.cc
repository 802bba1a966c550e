#include "csrc/communicator/flight_groups.h"

#include <pthread.h>

#include <mutex>

namespace taco {
namespace {

struct Registry {
  std::mutex mutex;  // guards both below; held across fork(), so that the child finds a whole list
  std::vector<FlightGroups::Listed> groups;
  uint32_t last = 0;
};

// Never destroyed: groups may fail while static objects are going.
Registry& registry() {
  static Registry* const instance = [] {
    static Registry* const made = new Registry;
    ::pthread_atfork([] { made->mutex.lock(); }, [] { made->mutex.unlock(); },
                     [] {
                       made->groups.clear();
                       made->mutex.unlock();
                     });
    return made;
  }();
  return *instance;
}

}  // namespace

void FlightGroups::add(const std::shared_ptr<FlightGroup>& group) {
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  group->number = ++all.last;
  size_t ended = 0;
  for (const Listed& one : all.groups) ended += one.end ? 1 : 0;
  for (auto at = all.groups.begin(); ended > kMostEnded;) {
    if (at->end) {
      at = all.groups.erase(at);
      --ended;
    } else {
      ++at;
    }
  }
  all.groups.push_back({group, std::nullopt});
}

void FlightGroups::end(const FlightGroup& group, const std::optional<std::string>& failure) {
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  for (Listed& one : all.groups) {
    if (one.group.get() == &group && !one.end) one.end = FlightGroupEnd{Clock::now(), failure};
  }
}

std::vector<FlightGroups::Listed> FlightGroups::all() {
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  return all.groups;
}

}  // namespace taco
