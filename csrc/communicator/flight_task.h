#pragma once

#include <cstdint>

#include "csrc/base/error.h"
#include "csrc/communicator/flight_groups.h"
#include "csrc/communicator/flight_record.h"

namespace taco {

// The flight record of one task of the ordered lane. The task was queued as one operation; each
// further one that its body runs is an entry of its own.
class FlightTask {
 public:
  FlightTask(FlightGroup& group, const char* title, uint64_t number, Clock::time_point now)
      : group_(group), title_(title), number_(number), began_(now) {}

  // The body has come to an operation: `call`, of which this rank has `elements`.
  void begin(const Call& call, uint64_t elements) {
    if (sequence_ != 0) {
      began_ = coarseNow();
      finishAt(began_);
      number_ = record_.queue(group_.number, title_, began_);
    }
    sequence_ = call.sequence;
    group_.begun.store(sequence_, std::memory_order_relaxed);
    record_.start(number_, call, elements, began_);
  }
  void done() { finishAt(coarseNow()); }
  void failed(const char* why) { record_.fail(number_, why, coarseNow()); }

 private:
  void finishAt(Clock::time_point now) {
    record_.finish(number_, now);
    if (sequence_ != 0) group_.completed.store(sequence_, std::memory_order_relaxed);
  }

  FlightRecord& record_ = FlightRecord::ofProcess();
  FlightGroup& group_;
  const char* const title_;
  uint64_t number_;
  Clock::time_point began_;
  uint64_t sequence_ = 0;  // of the operation that runs; 0: none yet
};

}  // namespace taco
