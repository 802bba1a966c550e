#include "launch/text.h"

#include "tests/csrc/catch.h"

namespace taco {
namespace {

TEST_CASE("whole numbers: digits that fit an int, and nothing else") {
  CHECK(wholeNumber("0") == 0);
  CHECK(wholeNumber("007") == 7);
  CHECK(wholeNumber("2147483647") == 2147483647);
  for (const char* const text : {"", "-1", "+1", " 1", "1 ", "1.0", "1e3", "0x1", "2147483648",
                                 "99999999999999999999999999", "one"}) {
    CHECK_FALSE(wholeNumber(text));
  }
}

TEST_CASE("quoting shows what a terminal would hide or obey, and cuts what is long") {
  CHECK(inQuotes("") == "''");
  CHECK(inQuotes("a b") == "'a b'");
  CHECK(inQuotes("1\r") == "'1\\x0d'");
  CHECK(inQuotes("\x1b[31m") == "'\\x1b[31m'");
  CHECK(inQuotes("\xc3\xa4") == "'\\xc3\\xa4'");
  CHECK(inQuotes(std::string(121, 'x')) == "'" + std::string(120, 'x') + "... (121 characters)'");
}

TEST_CASE("splitting, trimming, listing") {
  CHECK(splitAt("a,,b,", ',') == std::vector<std::string>{"a", "", "b", ""});
  CHECK(splitAt("", ',') == std::vector<std::string>{""});
  CHECK(trimmed(" \t a b \r\n") == "a b");
  CHECK(trimmed(" ") == "");
  CHECK(listed({}) == "");
  CHECK(listed({"a"}) == "a");
  CHECK(listed({"a", "b", "c"}) == "a, b and c");
}

}  // namespace
}  // namespace taco
