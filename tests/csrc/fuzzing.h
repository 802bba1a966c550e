#pragma once

// Hostile input from a seed that is printed: FUZZ_SEED=<seed> runs the same cases again,
// FUZZ_TIMES=<n> runs n times as many. CI runs every target for seconds, under the sanitizers too.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/csrc/seeded.h"

namespace taco::testing {

class Fuzz : public Seeded {
 public:
  Fuzz(const char* what, int cases)
      : Seeded(what, "FUZZ_SEED", 20261130,
               cases * static_cast<int>(setting("FUZZ_TIMES", 1))) {}

  // A number of the kind at which arithmetic goes wrong.
  uint64_t number() {
    static const std::vector<uint64_t> kLikely = {
        0,          1,          2,          3,     7,         8,         100,
        4095,       4096,       65535,      65536, 65537,     1 << 20,   1ull << 31,
        1ull << 32, 1ull << 62, 1ull << 63, ~0ull, ~0ull - 1, ~0ull - 47};
    return chance(80) ? oneOf(kLikely) : bits() >> below(64);
  }

  std::string bytes(size_t count) {
    std::string text(count, '\0');
    for (char& c : text) c = static_cast<char>(below(256));
    return text;
  }

  // `text` with one to four accidents: bits flipped, bytes changed, cut off, doubled, inserted, a
  // word overwritten, digits replaced. Sometimes it is nothing but noise.
  std::string mutated(std::string text) {
    if (chance(3)) return bytes(below(200));
    for (size_t count = 1 + below(4); count > 0; --count) mutate(text);
    return text;
  }

 private:
  void mutate(std::string& text) {
    const size_t at = below(text.size() + 1);
    switch (below(8)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        break;
      case 2:
        text.resize(at);
        break;
      case 3:
        if (text.size() < 4000) text.insert(at, text.substr(at, below(60)));
        break;
      case 4:
        text.insert(at, bytes(below(10)));
        break;
      case 5: {
        const uint64_t word = number();
        for (size_t i = 0; i < sizeof word && at + i < text.size(); ++i) {
          text[at + i] = static_cast<char>(word >> (8 * i));
        }
        break;
      }
      case 6: {
        const size_t digit = text.find_first_of("0123456789", at);
        if (digit != std::string::npos) text.replace(digit, 1, std::to_string(number()));
        break;
      }
      case 7:
        text.erase(at, 1 + below(20));
        break;
    }
  }
};

}  // namespace taco::testing
