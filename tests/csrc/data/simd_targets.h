// Runs a check once for every instruction set that Highway compiled and this CPU has.
#pragma once

#include <hwy/targets.h>

#include <cstdint>

namespace taco::testing {

// Restricts run-time dispatch to one target for as long as it lives.
class OnlyTarget {
 public:
  explicit OnlyTarget(int64_t target) { choose(target); }
  ~OnlyTarget() { choose(0); }  // 0: whatever the CPU has
  OnlyTarget(const OnlyTarget&) = delete;
  OnlyTarget& operator=(const OnlyTarget&) = delete;

 private:
  static void choose(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

// check(const char* nameOfTarget); returns how many targets there were.
template <class Check>
int forEachTarget(const Check& check) {
  int targets = 0;
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnlyTarget only(target);
    check(hwy::TargetName(target));
    ++targets;
  }
  return targets;
}

}  // namespace taco::testing
