// Stacks to switch between inside one OS thread: what the threads of a simulated block run on. A
// switch is a dozen instructions on x86-64, where the tests run; elsewhere ucontext.h, which costs
// system calls.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace taco::simt {

// One place to come back to: a fiber, or the OS thread that runs them.
struct Context {
#if defined(__x86_64__)
  void* stackPointer = nullptr;
#else
  ucontext_t context;
#endif
  // For the address sanitizer, which wants to know of every stack.
  void* fakeStack = nullptr;
  const void* stackBottom = nullptr;
  size_t stackBytes = 0;
};

// Makes `fiber` begin in `entry` on this stack. `entry` calls fiberBegins() first and never
// returns.
void prepareFiber(Context* fiber, char* stack, size_t stackBytes, void (*entry)());
void fiberBegins(Context* cameFrom);

void switchContext(Context* from, Context* to);

}  // namespace taco::simt
