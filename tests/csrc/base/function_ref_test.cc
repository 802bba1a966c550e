#include "csrc/base/function_ref.h"

#include <functional>
#include <memory>
#include <string>

#include "tests/csrc/catch.h"

namespace taco {
namespace {

std::string twice(FunctionRef<std::string(const std::string&)> call) {
  const std::string first = call("a");
  return first + call("b");
}
int consumed(FunctionRef<int(std::unique_ptr<int>)> call) { return call(std::make_unique<int>(7)); }

TEST_CASE("a function reference calls what it refers to, without copying it") {
  struct Counts {
    Counts() = default;
    Counts(const Counts&) = delete;
    std::string operator()(const std::string& text) {
      ++calls;
      return text + std::to_string(calls);
    }
    int calls = 0;
  } counts;
  CHECK(twice(counts) == "a1b2");
  CHECK(counts.calls == 2);
  CHECK(twice([](const std::string& text) { return text + text; }) == "aabb");
  const std::function<std::string(const std::string&)> function = [](const std::string&) { return "x"; };
  CHECK(twice(function) == "xx");
}

TEST_CASE("a function reference hands arguments and exceptions on") {
  CHECK(consumed([](std::unique_ptr<int> value) { return *value; }) == 7);
  CHECK_THROWS_AS(twice([](const std::string&) -> std::string { throw 7; }), int);
  int sum = 0;
  const auto add = [&](int value) { sum += value; };
  const FunctionRef<void(int)> first = add;
  const FunctionRef<void(int)> second = first;  // a copy refers to the same
  first(1);
  second(2);
  CHECK(sum == 3);
}

}  // namespace
}  // namespace taco
