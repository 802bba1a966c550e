#include "csrc/communicator/flight_record.h"

#include <pthread.h>

#include <cstring>

#include "csrc/base/wait.h"

namespace taco {
namespace {

// Stores to and loads from a place are releases and acquires, which order them against the version
// without fences (thread sanitizers know none), and cost nothing more on x86.
constexpr auto kStore = std::memory_order_release;
constexpr auto kLoad = std::memory_order_acquire;

// How often a writer looks whether another one has left the place. It writes a few words; one that
// does not leave was forked away in the middle, and this operation goes unrecorded.
constexpr int kMostLooks = 1000;
constexpr int kMostReads = 100;

constexpr uint64_t versionOf(uint64_t number) { return 2 * (number + 1); }

Clock::rep ticks(Clock::time_point at) { return at.time_since_epoch().count(); }
Clock::time_point timeOf(Clock::rep ticks) { return Clock::time_point(Clock::duration(ticks)); }

}  // namespace

const char* name(FlightState state) {
  switch (state) {
    case FlightState::kQueued:
      return "queued";
    case FlightState::kStarted:
      return "started";
    case FlightState::kDone:
      return "done";
    case FlightState::kFailed:
      return "failed";
  }
  return "unknown state";
}

FlightRecord& FlightRecord::ofProcess() {
  static FlightRecord* const record = [] {
    static FlightRecord* const made = new FlightRecord;
    ::pthread_atfork(nullptr, nullptr, [] { made->clear(); });
    return made;
  }();
  return *record;
}

template <typename Write>
uint64_t FlightRecord::claim(const Write& write) {
  const uint64_t number = next_.fetch_add(1, std::memory_order_relaxed);
  Place& place = places_[number % kCapacity];
  for (int i = 0; i < kMostLooks; ++i) {
    uint64_t seen = place.version.load(std::memory_order_relaxed);
    if (seen > versionOf(number)) break;  // overtaken by as many operations as there are places
    if (seen % 2 == 0 && place.version.compare_exchange_weak(seen, versionOf(number) + 1,
                                                             std::memory_order_acq_rel)) {
      write(place);
      place.version.store(versionOf(number), kStore);
      break;
    }
    pauseCpu();
  }
  return number;
}

template <typename Write>
void FlightRecord::change(uint64_t number, const Write& write) {
  Place& place = places_[number % kCapacity];
  for (int i = 0; i < kMostLooks; ++i) {
    uint64_t seen = versionOf(number);
    if (place.version.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel)) {
      write(place);
      place.version.store(versionOf(number), kStore);
      return;
    }
    if (seen / 2 != versionOf(number) / 2) return;  // the place is another operation's by now
    pauseCpu();
  }
}

void FlightRecord::setCall(Place& place, const Call& call) {
  place.op.store(call.op, kStore);
  place.dtype.store(call.dtype, kStore);
  place.reduceOp.store(call.reduceOp, kStore);
  place.hasReduceOp.store(call.hasReduceOp, kStore);
  place.root.store(call.root, kStore);
  place.sequence.store(call.sequence, kStore);
  place.count.store(call.count, kStore);
}

uint64_t FlightRecord::queue(uint32_t group, const char* title, Clock::time_point now) {
  return claim([&](Place& place) {
    place.group.store(group, kStore);
    place.state.store(FlightState::kQueued, kStore);
    place.kind.store(FlightKind::kNotKnownYet, kStore);
    setCall(place, Call());
    place.elements.store(0, kStore);
    place.title.store(title, kStore);
    place.queued.store(ticks(now), kStore);
    place.started.store(0, kStore);
    place.finished.store(0, kStore);
  });
}

uint64_t FlightRecord::post(uint32_t group, FlightKind kind, const Call& message, int64_t tag,
                            Clock::time_point now) {
  return claim([&](Place& place) {
    place.group.store(group, kStore);
    place.state.store(FlightState::kStarted, kStore);
    place.kind.store(kind, kStore);
    setCall(place, message);
    place.elements.store(message.count, kStore);
    place.tag.store(tag, kStore);
    place.title.store(nullptr, kStore);
    place.queued.store(ticks(now), kStore);
    place.started.store(ticks(now), kStore);
    place.finished.store(0, kStore);
  });
}

void FlightRecord::start(uint64_t number, const Call& call, uint64_t elements,
                         Clock::time_point now) {
  change(number, [&](Place& place) {
    place.state.store(FlightState::kStarted, kStore);
    place.kind.store(FlightKind::kCollective, kStore);
    setCall(place, call);
    place.elements.store(elements, kStore);
    place.started.store(ticks(now), kStore);
  });
}

void FlightRecord::finish(uint64_t number, Clock::time_point now) {
  change(number, [&](Place& place) {
    place.state.store(FlightState::kDone, kStore);
    place.finished.store(ticks(now), kStore);
  });
}

void FlightRecord::fail(uint64_t number, const char* why, Clock::time_point now) {
  char text[kErrorBytes] = "";
  std::strncpy(text, why, sizeof text - 1);
  change(number, [&](Place& place) {
    if (place.state.load(kLoad) == FlightState::kFailed) return;  // the first reason stays
    place.state.store(FlightState::kFailed, kStore);
    place.finished.store(ticks(now), kStore);
    ErrorText& words = errors_[number % kCapacity];
    for (size_t i = 0; i < words.size(); ++i) {
      uint64_t word = 0;
      std::memcpy(&word, text + i * sizeof word, sizeof word);
      words[i].store(word, kStore);
    }
  });
}

void FlightRecord::setPeer(uint64_t number, int peer) {
  change(number, [&](Place& place) { place.root.store(peer, kStore); });
}

void FlightRecord::failRest(uint32_t group, const char* why, Clock::time_point now) {
  for (const FlightOperation& one : operations()) {
    const bool over = one.state == FlightState::kDone || one.state == FlightState::kFailed;
    if (one.group == group && !over) fail(one.number, why, now);
  }
}

bool FlightRecord::read(uint64_t number, FlightOperation* into) const {
  const Place& place = places_[number % kCapacity];
  for (int i = 0; i < kMostReads; ++i) {
    if (place.version.load(kLoad) == versionOf(number)) {
      FlightOperation& it = *into;
      it.number = number;
      it.group = place.group.load(kLoad);
      it.state = place.state.load(kLoad);
      it.kind = place.kind.load(kLoad);
      it.call.op = place.op.load(kLoad);
      it.call.dtype = place.dtype.load(kLoad);
      it.call.reduceOp = place.reduceOp.load(kLoad);
      it.call.hasReduceOp = place.hasReduceOp.load(kLoad);
      it.call.root = place.root.load(kLoad);
      it.call.sequence = place.sequence.load(kLoad);
      it.call.count = place.count.load(kLoad);
      it.elements = place.elements.load(kLoad);
      it.tag = place.tag.load(kLoad);
      it.title = place.title.load(kLoad);
      it.queued = timeOf(place.queued.load(kLoad));
      it.started = timeOf(place.started.load(kLoad));
      it.finished = timeOf(place.finished.load(kLoad));
      char text[kErrorBytes] = "";
      if (it.state == FlightState::kFailed) {
        const ErrorText& words = errors_[number % kCapacity];
        for (size_t w = 0; w < words.size(); ++w) {
          const uint64_t word = words[w].load(kLoad);
          std::memcpy(text + w * sizeof word, &word, sizeof word);
        }
      }
      if (place.version.load(std::memory_order_relaxed) == versionOf(number)) {
        text[kErrorBytes - 1] = '\0';
        it.error = text;
        return true;
      }
    }
    pauseCpu();
  }
  return false;  // it has lost its place, or its writer does not come to an end
}

std::vector<FlightOperation> FlightRecord::operations() const {
  const uint64_t end = next_.load(kLoad);
  uint64_t number = first_.load(kLoad);
  if (end - number > kCapacity) number = end - kCapacity;
  std::vector<FlightOperation> all;
  all.reserve(end - number);
  FlightOperation one;
  for (; number < end; ++number) {
    if (read(number, &one)) all.push_back(one);
  }
  return all;
}

uint64_t FlightRecord::forgotten() const {
  const uint64_t called = next_.load(kLoad) - first_.load(kLoad);
  return called > kCapacity ? called - kCapacity : 0;
}

void FlightRecord::clear() { first_.store(next_.load(kLoad), kStore); }

}  // namespace taco
