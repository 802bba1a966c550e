#pragma once

#include <cstdint>

namespace taco {

// A number that stays the same within a process and is another one in every process forked from it:
// "am I still in the process that made this object?", as getpid() would answer, but without a
// system call (100 ns, as much as a small all-reduce). One page that the kernel clears in a forked
// child (MADV_WIPEONFORK) says that a new number is due.
uint64_t processGeneration();

}  // namespace taco
