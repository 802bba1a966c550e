// Copies for memory that several processes share.
//
// glibc's memcpy ("rep movsb" on many machines) is 3-4 times slower than a plain loop of vector
// loads and stores when the lines it touches are dirty in another core's cache. These loops move
// 64 bytes at a time and ask for ownership (PREFETCHW) of the lines ahead, so that a line changes
// owner once and not first for reading and then again for writing.
#pragma once

#include <cstddef>

namespace taco {

// Both: no overlap, except that `dst == src` does nothing. Any alignment, any size.

// For copying into a shared window: owns the destination's lines ahead of the stores.
void copyBytes(void* dst, const void* src, size_t bytes);

// For copying out of a shared window whose lines this core is the next to write: owns the source's
// lines as well. The source must be writable memory of this process (it is not modified).
void gatherBytes(void* dst, const void* src, size_t bytes);

}  // namespace taco
