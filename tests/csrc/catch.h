#pragma once

// The one door to Catch2. Debian 12 and Ubuntu 22.04 ship version 2 (one header), Ubuntu 24.04 and later
// ship version 3 (split headers); a test that includes this file compiles with both.

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>

// Version 2 has this name at the top level.
using Catch::Approx;
#else
#include <catch2/catch.hpp>

// Version 3 renamed the matcher; tests write the newer name.
namespace Catch::Matchers {
inline auto ContainsSubstring(const std::string& text,
                              CaseSensitive::Choice caseSensitivity = CaseSensitive::Yes) {
  return Contains(text, caseSensitivity);
}
}  // namespace Catch::Matchers
#endif
