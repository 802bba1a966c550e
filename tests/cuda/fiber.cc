#include "tests/cuda/fiber.h"

#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
// Saves what a function must preserve (System V: rbx, rbp, r12 to r15) on the old stack, and takes
// it from the new one.
asm(R"(
.text
.globl taco_simt_switch
.hidden taco_simt_switch
.type taco_simt_switch, @function
taco_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size taco_simt_switch, . - taco_simt_switch
)");
extern "C" void taco_simt_switch(void** savedStackPointer, void* newStackPointer);
#endif

namespace taco::simt {

void prepareFiber(Context* fiber, char* stack, size_t stackBytes, void (*entry)()) {
#if defined(__SANITIZE_ADDRESS__)
  // An abandoned fiber has left the marks of its variables.
  __asan_unpoison_memory_region(stack, stackBytes);
#endif
  *fiber = {};
  fiber->stackBottom = stack;
  fiber->stackBytes = stackBytes;
#if defined(__x86_64__)
  // As a call would leave it: the stack pointer is 8 below a multiple of 16 when `entry` begins,
  // with 0 for a return address. Below it, what the switch takes: six registers and where to go.
  const uintptr_t top = (reinterpret_cast<uintptr_t>(stack) + stackBytes) & ~uintptr_t{15};
  auto* words = reinterpret_cast<void**>(top);
  *--words = nullptr;
  *--words = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--words = nullptr;
  fiber->stackPointer = words;
#else
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = stack;
  fiber->context.uc_stack.ss_size = stackBytes;
  fiber->context.uc_link = nullptr;
  makecontext(&fiber->context, entry, 0);
#endif
}

void fiberBegins([[maybe_unused]] Context* cameFrom) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &cameFrom->stackBottom, &cameFrom->stackBytes);
#endif
}

void switchContext(Context* from, Context* to) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from->fakeStack, to->stackBottom, to->stackBytes);
#endif
#if defined(__x86_64__)
  taco_simt_switch(&from->stackPointer, to->stackPointer);
#else
  swapcontext(&from->context, &to->context);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(from->fakeStack, nullptr, nullptr);
#endif
}

}  // namespace taco::simt
