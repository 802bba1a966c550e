#include "perf/native/start_line.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "csrc/base/error.h"
#include "csrc/base/flag_latency.h"

namespace taco::perf {
namespace {

constexpr size_t kLine = 128;  // two cache lines: neighbours are prefetched in pairs
constexpr size_t kSlotBytes = 4096;
constexpr std::chrono::minutes kPatience(5);

struct alignas(kLine) Place {
  std::atomic<uint64_t> arrived;
  alignas(kLine) char slot[kSlotBytes];
};

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

// All zero at first, as a new file is: nobody has to set it up before the others come.
struct StartLine::Shared {
  std::atomic<uint64_t> gaveUp;
  Place places[];  // by rank
};

StartLine::StartLine(const std::string& folder, int rank, int size) : rank_(rank), size_(size) {
  const std::string path = folder + "/start-line";
  const int file = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) throw systemError("open " + path, errno);
  mappedBytes_ = sizeof(Shared) + static_cast<size_t>(size) * sizeof(Place);
  void* memory = MAP_FAILED;
  if (::ftruncate(file, static_cast<off_t>(mappedBytes_)) == 0) {
    memory = ::mmap(nullptr, mappedBytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  const int why = errno;
  ::close(file);
  if (memory == MAP_FAILED) throw systemError("mmap " + path, why);
  shared_ = static_cast<Shared*>(memory);

  // A rank that mpirun has bound to one core sees only that one; all of them together see theirs.
  cpu_set_t own;
  CPU_ZERO(&own);
  if (::sched_getaffinity(0, sizeof own, &own) != 0) throw systemError("sched_getaffinity", errno);
  std::vector<cpu_set_t> all(static_cast<size_t>(size));
  exchange(&own, all.data(), sizeof own);
  CPU_ZERO(&cpus_);
  for (const cpu_set_t& one : all) CPU_OR(&cpus_, &cpus_, &one);
  usableCpus_ = CPU_COUNT(&cpus_);
  coresForAll_ = usableCpus_ >= size;
}

StartLine::~StartLine() { ::munmap(shared_, mappedBytes_); }

template <typename Condition>
void StartLine::until(Condition condition, bool asleep) {
  using Clock = std::chrono::steady_clock;
  const auto began = Clock::now();
  for (uint64_t turn = 1; !condition(); ++turn) {
    if (coresForAll_ && !asleep && turn % 4096 != 0) {
      pause();
      continue;
    }
    ::sched_yield();
    if (!asleep && turn % 64 != 0) continue;
    if (shared_->gaveUp.load() != 0) throw std::runtime_error("another rank has given up");
    const auto waited = Clock::now() - began;
    if (waited > kPatience)
      throw std::runtime_error("the other ranks did not come within 5 minutes");
    // Somebody is busy with something long: leave the core to it.
    if (asleep || waited > std::chrono::milliseconds(100)) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
}

void StartLine::wait() { await(/*asleep=*/false); }

void StartLine::await(bool asleep) {
  const uint64_t mine = ++waits_;
  shared_->places[rank_].arrived.store(mine, std::memory_order_release);
  for (int rank = 0; rank < size_; ++rank) {
    until([&] { return shared_->places[rank].arrived.load(std::memory_order_acquire) >= mine; },
          asleep);
  }
}

void StartLine::exchange(const void* own, void* all, size_t bytesEach) {
  if (bytesEach > kSlotBytes) throw std::invalid_argument("exchange: more than 4096 bytes");
  std::memcpy(shared_->places[rank_].slot, own, bytesEach);
  wait();
  for (int rank = 0; rank < size_; ++rank) {
    std::memcpy(static_cast<char*>(all) + static_cast<size_t>(rank) * bytesEach,
                shared_->places[rank].slot, bytesEach);
  }
  wait();  // until all have read: the next exchange overwrites it
}

std::vector<std::vector<double>> StartLine::gather(const std::vector<double>& own) {
  std::vector<std::vector<double>> all(static_cast<size_t>(size_));
  constexpr size_t kChunk = kSlotBytes / sizeof(double);
  std::vector<double> received(kChunk * static_cast<size_t>(size_));
  for (size_t begin = 0; begin < own.size(); begin += kChunk) {
    const size_t count = std::min(kChunk, own.size() - begin);
    exchange(own.data() + begin, received.data(), count * sizeof(double));
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const auto from = received.begin() + static_cast<std::ptrdiff_t>(rank * count);
      all[rank].insert(all[rank].end(), from, from + static_cast<std::ptrdiff_t>(count));
    }
  }
  return all;
}

double StartLine::flagNanoseconds() {
  double nanoseconds = 0;
  if (rank_ == 0 && usableCpus_ >= 2) {
    int cpus[2] = {-1, -1};
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &cpus_)) continue;
      if (cpus[0] < 0) {
        cpus[0] = cpu;
      } else if (cpus[1] < 0) {
        cpus[1] = cpu;
      }
    }
    nanoseconds = flagLatencyNs(cpus[0], cpus[1]);
  }
  // Asleep: the others would take the cores from what is measured.
  await(/*asleep=*/true);
  return gather({nanoseconds})[0][0];
}

void StartLine::giveUp() { shared_->gaveUp.store(1); }

}  // namespace taco::perf
