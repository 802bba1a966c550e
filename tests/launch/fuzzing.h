#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace taco::testing {

// Random input from a seed that is printed: LAUNCH_FUZZ_SEED=<seed> runs the same cases again,
// another seed runs others, LAUNCH_FUZZ_CASES=<n> more of them.
class Fuzz {
 public:
  Fuzz(const char* what, int cases)
      : seed_(setting("LAUNCH_FUZZ_SEED", 20240511)),
        cases_(static_cast<int>(setting("LAUNCH_FUZZ_CASES", cases))),
        random_(seed_) {
    std::printf("fuzz: %s, LAUNCH_FUZZ_SEED=%llu, %d cases\n", what,
                static_cast<unsigned long long>(seed_), cases_);
  }

  int cases() const { return cases_; }
  uint64_t seed() const { return seed_; }

  // 0 ... below - 1.
  size_t below(size_t limit) { return random_() % limit; }
  bool chance(size_t percent) { return below(100) < percent; }

  template <typename T>
  const T& oneOf(const std::vector<T>& all) {
    return all[below(all.size())];
  }

  // `text` with one to four small accidents; `others` are texts to borrow from.
  std::string mutated(std::string text, const std::vector<std::string>& others) {
    for (size_t count = 1 + below(4); count > 0; --count) mutate(text, others);
    return text;
  }

 private:
  static uint64_t setting(const char* name, uint64_t otherwise) {
    const char* const value = std::getenv(name);
    return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
  }

  char character() {
    static const std::string kLikely = "0123456789,:;[]()=-x. \t\r\n#@%{}\"'^/\\_aZ";
    return chance(90) ? kLikely[below(kLikely.size())] : static_cast<char>(below(256));
  }

  void mutate(std::string& text, const std::vector<std::string>& others) {
    const size_t at = below(text.size() + 1);
    switch (below(7)) {
      case 0:
        text.insert(text.begin() + static_cast<long>(at), character());
        break;
      case 1:
        text.erase(at, 1 + below(3));
        break;
      case 2:
        if (at < text.size()) text[at] = character();
        break;
      case 3:  // cut off
        text.resize(at);
        break;
      case 4:  // a part twice
        if (text.size() < 2000) text.insert(at, text.substr(at, below(20)));
        break;
      case 5:  // the beginning of one and the end of another
        if (!others.empty()) {
          const std::string& other = oneOf(others);
          text = text.substr(0, at) + other.substr(below(other.size() + 1));
        }
        break;
      case 6:  // many of one character
        if (text.size() < 2000) text.insert(at, below(40), character());
        break;
    }
  }

  const uint64_t seed_;
  const int cases_;
  std::mt19937_64 random_;
};

}  // namespace taco::testing
