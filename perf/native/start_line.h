#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

namespace taco::perf {

// Where the ranks of a benchmark wait for each other and tell each other their figures: a file in
// memory that belongs to no contender, so that every contender's repeats start alike.
class StartLine {
 public:
  // Collective. `folder` is empty at first and the same for all ranks. Waits end with
  // std::runtime_error after five minutes, or as soon as another rank has given up.
  StartLine(const std::string& folder, int rank, int size);
  ~StartLine();
  StartLine(const StartLine&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Whether each rank has a core for itself: then waiting is spinning, else it is yielding.
  bool coresForAll() const { return coresForAll_; }
  int usableCpus() const { return usableCpus_; }

  void wait();

  // Collective: `bytesEach` bytes of every rank, in rank order.
  void exchange(const void* own, void* all, size_t bytesEach);

  // Collective: the values of every rank, by rank; all give equally many.
  std::vector<std::vector<double>> gather(const std::vector<double>& own);

  // Collective: how long a flag takes from one of the ranks' cores to another; 0 where there is but
  // one.
  double flagNanoseconds();

  void giveUp();  // this rank failed: the others need not wait for it

 private:
  struct Shared;
  template <typename Condition>
  void until(Condition condition, bool asleep);
  void await(bool asleep);

  const int rank_;
  const int size_;
  bool coresForAll_ = false;
  int usableCpus_ = 1;
  cpu_set_t cpus_;  // usable by any of the ranks
  size_t mappedBytes_ = 0;
  Shared* shared_ = nullptr;
  uint64_t waits_ = 0;
};

}  // namespace taco::perf
