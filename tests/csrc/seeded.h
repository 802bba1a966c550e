#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

namespace taco::testing {

// Random choices from a seed that is printed together with the variable that sets it, so that the
// same cases can be run again. What is made of them: tests/csrc/fuzzing.h, tests/launch/fuzzing.h.
class Seeded {
 public:
  int cases() const { return cases_; }
  uint64_t seed() const { return seed_; }

  uint64_t bits() { return random_(); }
  size_t below(size_t limit) { return random_() % limit; }  // 0 ... limit - 1
  bool chance(size_t percent) { return below(100) < percent; }

  template <typename T>
  const T& oneOf(const std::vector<T>& all) {
    return all[below(all.size())];
  }

 protected:
  Seeded(const char* what, const char* seedVariable, uint64_t seed, int cases)
      : seed_(setting(seedVariable, seed)), cases_(cases), random_(seed_) {
    std::printf("fuzz: %s, %s=%llu, %d cases\n", what, seedVariable,
                static_cast<unsigned long long>(seed_), cases_);
  }

  // A number in the environment.
  static uint64_t setting(const char* name, uint64_t otherwise) {
    const char* const value = std::getenv(name);
    return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
  }

 private:
  const uint64_t seed_;
  const int cases_;
  std::mt19937_64 random_;
};

}  // namespace taco::testing
