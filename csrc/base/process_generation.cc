#include "csrc/base/process_generation.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

namespace taco {
namespace {

using Word = std::atomic<uint64_t>;

// 0 in a process that has not asked yet. Null where the kernel does not clear pages for children
// (Linux before 4.14).
Word* clearedByFork() {
  void* const page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  if (::madvise(page, 4096, MADV_WIPEONFORK) != 0) {
    ::munmap(page, 4096);
    return nullptr;
  }
  return new (page) Word(0);
}

}  // namespace

uint64_t processGeneration() {
  static Word* const word = clearedByFork();
  if (word == nullptr) return static_cast<uint64_t>(::getpid());
  uint64_t mine = word->load(std::memory_order_relaxed);
  if (mine != 0) return mine;
  // Inherited, so a child's is larger than all that its parent had given out when it forked.
  static Word given{0};
  const uint64_t next = given.fetch_add(1) + 1;
  return word->compare_exchange_strong(mine, next) ? next : mine;
}

}  // namespace taco
