#include "csrc/base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace taco {
namespace {

// Not FUTEX_PRIVATE_FLAG: the word is shared between processes.
long futex(std::atomic<uint32_t>* word, int op, uint32_t value, const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), op, value, timeout, nullptr, 0);
}

}  // namespace

void SharedCounter::wakeAll() { futex(&value, FUTEX_WAKE, INT32_MAX, nullptr); }

void SharedCounter::sleep(uint32_t target, std::chrono::nanoseconds atMost) {
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t seen = value.load(std::memory_order_seq_cst);
  if (static_cast<int32_t>(seen - target) < 0) {
    timespec timeout;
    timeout.tv_sec = static_cast<time_t>(atMost.count() / 1000000000);
    timeout.tv_nsec = static_cast<long>(atMost.count() % 1000000000);
    futex(&value, FUTEX_WAIT, seen, &timeout);
  }
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace taco
