#pragma once

#include <string>
#include <vector>

#include "tests/csrc/seeded.h"

namespace taco::testing {

// Random input from a seed that is printed: LAUNCH_FUZZ_SEED=<seed> runs the same cases again,
// another seed runs others, LAUNCH_FUZZ_CASES=<n> more of them.
class Fuzz : public Seeded {
 public:
  Fuzz(const char* what, int cases)
      : Seeded(what, "LAUNCH_FUZZ_SEED", 20240511,
               static_cast<int>(setting("LAUNCH_FUZZ_CASES", static_cast<uint64_t>(cases)))) {}

  // `text` with one to four small accidents; `others` are texts to borrow from.
  std::string mutated(std::string text, const std::vector<std::string>& others) {
    for (size_t count = 1 + below(4); count > 0; --count) mutate(text, others);
    return text;
  }

 private:
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
};

}  // namespace taco::testing
