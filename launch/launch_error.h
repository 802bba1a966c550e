#pragma once

#include <string>

#include "csrc/base/error.h"

namespace taco {

// Which rule of the launch environment was broken; docs/launching.md has a section for each.
enum class LaunchRule {
  kE1,     // a set of variables is incomplete, or a value is not what the variable takes
  kE2,     // a rank outside its world, a local rank outside its local world, a node outside the job
  kE3,     // two processes with one rank, or processes with different world sizes
  kE4,     // counts of GPUs, slots, nodes or tasks that contradict each other
  kE5,     // one launcher inside another, with sizes that do not fit
  kE6,     // the master's address or port cannot be right
  kE8,     // an address that is none, or a name that did not resolve
  kLevel,  // the environment describes a node or a launcher, and a process was asked for
};

// "E1" ... "E8", "level". (E7 is a warning, never an error.)
const char* name(LaunchRule rule);

// The one exception of launch/. The message is a sentence that names the variable, its value, where
// it came from, and what to do.
class LaunchError : public Error {
 public:
  LaunchError(LaunchRule rule, const std::string& message)
      : Error(ErrorCode::kInvalidSettings, message), rule_(rule) {}

  LaunchRule rule() const { return rule_; }

 private:
  LaunchRule rule_;
};

}  // namespace taco
