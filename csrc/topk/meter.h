#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

namespace taco {

// What compression has cost this rank so far, and how fast its exchange was: the best of each, since
// waiting for a late rank is in the others. For people (torch_taco.explain); no decision is made of
// it, for it differs between ranks. Written by the thread that runs the group's collectives.
class TopkMeter {
 public:
  // Selecting from `elements`, and adding up the payloads.
  void worked(size_t elements, double seconds) {
    lower(secondsPerElement_, seconds / static_cast<double>(elements));
  }
  // Sending `bytes` to other nodes, and receiving theirs.
  void exchanged(size_t bytes, double seconds) {
    lower(secondsPerByte_, seconds / static_cast<double>(bytes));
  }
  double secondsPerElement() const { return secondsPerElement_.load(); }  // 0: not measured yet
  double secondsPerByte() const { return secondsPerByte_.load(); }

 private:
  static void lower(std::atomic<double>& best, double value) {
    const double before = best.load(std::memory_order_relaxed);
    best.store(before == 0 ? value : std::min(before, value), std::memory_order_relaxed);
  }

  std::atomic<double> secondsPerElement_{0};
  std::atomic<double> secondsPerByte_{0};
};

}  // namespace taco
