// PREFETCHW: asks for a cache line in order to write it, so that a line that is dirty in another
// core's cache changes owner once instead of first for reading and then again for writing.
#pragma once

#include <cstddef>

namespace taco {

inline constexpr size_t kCacheLineBytes = 64;
// Ownership is asked for at once of the first lines of a pass, so that the misses of a small
// message overlap, and then of lines this far ahead of the loads and stores.
inline constexpr size_t kOwnFirstBytes = 1024;
inline constexpr size_t kOwnAheadBytes = 512;

inline void prefetchForWrite(const void* address) {
#if defined(__x86_64__) || defined(__i386__)
  // __builtin_prefetch(p, 1) becomes a read prefetch unless the whole file may use PREFETCHW. Every
  // 64-bit x86 decodes the instruction (those without the feature as a no-op).
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

}  // namespace taco
