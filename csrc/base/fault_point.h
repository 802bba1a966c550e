#pragma once

#include <atomic>
#include <string>

namespace taco {

// A seam for tests of failures: named points in the product at which a test lets this process end,
// stop or fail, so that every phase of every algorithm can be hit on purpose. Only code of this
// process can set one (no environment variable does). In production none is set, and a point costs
// one relaxed load.
enum class FaultAction {
  kKill,   // SIGKILL to this process
  kStop,   // SIGSTOP: alive for the kernel, which goes on answering for it
  kExit,   // ends with status 0 and without a word
  kThrow,  // an exception out of nowhere
  kCrash,  // SIGSEGV
};

// Throws Error(kInvalidArgument) for another word than "kill", "stop", "exit", "throw", "crash".
FaultAction faultActionOf(const std::string& word);

// From now on, the nth time (1 = the first) that this process reaches the point `name`, it does
// `action`, once. A second call replaces the first; an empty name takes it back. Not while another
// thread may be at a point.
void setFaultPoint(const std::string& name, int nth, FaultAction action);

struct FaultPlan;
extern std::atomic<FaultPlan*> currentFaultPlan;  // null in production
void reachFaultPoint(const FaultPlan& plan, const char* name);

inline void faultPoint(const char* name) {
  const FaultPlan* const plan = currentFaultPlan.load(std::memory_order_relaxed);
  if (plan != nullptr) [[unlikely]] reachFaultPoint(*plan, name);
}

}  // namespace taco
