#include "csrc/base/fault_point.h"

#include <signal.h>
#include <unistd.h>

#include <stdexcept>

#include "csrc/base/error.h"
#include "csrc/base/format.h"

namespace taco {

struct FaultPlan {
  std::string name;
  FaultAction action;
  mutable std::atomic<int> left;  // until it happens; threads may reach the point at once
};

std::atomic<FaultPlan*> currentFaultPlan{nullptr};

FaultAction faultActionOf(const std::string& word) {
  if (word == "kill") return FaultAction::kKill;
  if (word == "stop") return FaultAction::kStop;
  if (word == "exit") return FaultAction::kExit;
  if (word == "throw") return FaultAction::kThrow;
  if (word == "crash") return FaultAction::kCrash;
  throw Error(ErrorCode::kInvalidArgument,
              str("the action at a fault point is '", word,
                  "', but must be one of kill, stop, exit, throw and crash"));
}

void setFaultPoint(const std::string& name, int nth, FaultAction action) {
  delete currentFaultPlan.exchange(
      name.empty() ? nullptr : new FaultPlan{name, action, std::atomic<int>(nth)});
}

void reachFaultPoint(const FaultPlan& plan, const char* name) {
  if (plan.name != name || plan.left.fetch_sub(1) != 1) return;
  switch (plan.action) {
    case FaultAction::kKill:
      ::kill(::getpid(), SIGKILL);
      ::pause();
      return;
    case FaultAction::kStop:
      ::kill(::getpid(), SIGSTOP);
      return;
    case FaultAction::kExit:
      ::_exit(0);
    case FaultAction::kThrow:
      throw std::runtime_error(str("the fault point '", name, "' was reached"));
    case FaultAction::kCrash:
      ::signal(SIGSEGV, SIG_DFL);  // whatever a test framework has put there
      ::raise(SIGSEGV);
      return;
  }
}

}  // namespace taco
