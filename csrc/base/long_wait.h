#pragma once

#include <chrono>

namespace taco {

// Asked by a wait that has lasted kAskAfter, and then every kAskAgain: is there a reason why `rank`
// will never do its part? Throws that reason as an Error. It finds what no link can see: ranks that
// wait for each other on different links, because they called different operations.
class LongWait {
 public:
  virtual ~LongWait() = default;
  virtual void waitingFor(int rank) = 0;

  static constexpr std::chrono::milliseconds kAskAfter{1000};
  static constexpr std::chrono::milliseconds kAskAgain{500};
};

}  // namespace taco
