#pragma once

// Ranks as threads of this process. Catch's assertions belong to the main thread: a rank that finds
// something wrong throws, and the errors are collected when all have ended. Nobody hangs: a
// watchdog says which ranks did not end, and ends the process.

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/error.h"
#include "csrc/base/format.h"
#include "tests/csrc/catch.h"

namespace taco::testing {

// For ranks: an assertion.
inline void expect(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}

// How the ranks ended.
struct Outcomes {
  std::vector<std::exception_ptr> errors;  // by rank; null: returned

  bool succeeded(int rank) const { return !errors[static_cast<size_t>(rank)]; }

  // The taco::Error that `rank` ended with; anything else fails the test.
  Error error(int rank) const {
    const std::exception_ptr& thrown = errors[static_cast<size_t>(rank)];
    if (!thrown) {
      FAIL("rank " << rank << " threw nothing");
    }
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      return error;
    } catch (const std::exception& other) {
      FAIL("rank " << rank << " threw something else: " << other.what());
    }
    throw std::logic_error("not reached");
  }
  std::string what(int rank) const { return error(rank).what(); }
};

constexpr std::chrono::seconds kWatchdog{100};

// Runs body(rank) on a thread each.
inline Outcomes tryRanks(int size, const std::function<void(int rank)>& body) {
  Outcomes outcomes;
  outcomes.errors.resize(static_cast<size_t>(size));
  std::mutex mutex;
  std::condition_variable ended;
  std::vector<bool> done(static_cast<size_t>(size), false);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        outcomes.errors[static_cast<size_t>(rank)] = std::current_exception();
      }
      std::lock_guard<std::mutex> lock(mutex);
      done[static_cast<size_t>(rank)] = true;
      ended.notify_all();
    });
  }
  {
    std::unique_lock<std::mutex> lock(mutex);
    auto allDone = [&] {
      for (bool one : done) {
        if (!one) return false;
      }
      return true;
    };
    if (!ended.wait_until(lock, std::chrono::steady_clock::now() + kWatchdog, allDone)) {
      std::string stuck;
      for (size_t rank = 0; rank < done.size(); ++rank) {
        if (!done[rank]) stuck += str(" ", rank);
      }
      std::fprintf(stderr, "watchdog: these of %d ranks hang:%s\n", size, stuck.c_str());
      for (size_t rank = 0; rank < done.size(); ++rank) {
        if (!done[rank] || !outcomes.errors[rank]) continue;
        try {
          std::rethrow_exception(outcomes.errors[rank]);
        } catch (const std::exception& error) {
          std::fprintf(stderr, "watchdog: rank %zu had thrown: %s\n", rank, error.what());
        }
      }
      std::abort();
    }
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

// The same, and all must succeed.
inline void runRanks(int size, const std::function<void(int rank)>& body) {
  const Outcomes outcomes = tryRanks(size, body);
  std::string trouble;
  for (int rank = 0; rank < size; ++rank) {
    if (outcomes.succeeded(rank)) continue;
    try {
      std::rethrow_exception(outcomes.errors[static_cast<size_t>(rank)]);
    } catch (const std::exception& error) {
      trouble += str("rank ", rank, " of ", size, ": ", error.what(), "\n");
    }
  }
  if (!trouble.empty()) FAIL(trouble);
}

// The Error that `body` throws.
inline Error errorOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  FAIL("no error was thrown");
  throw std::logic_error("not reached");
}

}  // namespace taco::testing
