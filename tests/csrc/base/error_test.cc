#include "csrc/base/error.h"

#include <cerrno>
#include <set>
#include <thread>

#include "csrc/base/abort.h"
#include "tests/csrc/ranks.h"

namespace taco {
namespace {

using namespace taco::testing;
using Catch::Matchers::ContainsSubstring;

constexpr ErrorCode kAllCodes[] = {ErrorCode::kInvalidArgument, ErrorCode::kUnsupported,
                                   ErrorCode::kInvalidSettings, ErrorCode::kMismatch,
                                   ErrorCode::kTimeout,         ErrorCode::kPeerFailed,
                                   ErrorCode::kAborted,         ErrorCode::kSystem};

TEST_CASE("every code has a name of its own, and three are the caller's fault") {
  std::set<std::string> names;
  int callers = 0;
  for (const ErrorCode code : kAllCodes) {
    names.insert(name(code));
    if (Error(code, "x").isCallersFault()) ++callers;
  }
  CHECK(names.size() == 8);
  CHECK(names.count("unknown error") == 0);
  CHECK(callers == 3);
  CHECK_FALSE(Error(ErrorCode::kMismatch, "x").isCallersFault());
}

TEST_CASE("a system error says what failed and why") {
  const Error error = systemError("cannot open /nowhere", ENOENT);
  CHECK(error.code() == ErrorCode::kSystem);
  CHECK(error.rank() == -1);
  CHECK_THAT(error.what(), ContainsSubstring("cannot open /nowhere: No such file"));
}

TEST_CASE("the first reason of an abort signal stays") {
  AbortSignal signal;
  CHECK_FALSE(signal.raised());
  CHECK_FALSE(signal.reason());
  signal.throwIfRaised();
  CHECK(signal.raise(Error(ErrorCode::kPeerFailed, "first", 1)));
  CHECK_FALSE(signal.raise(Error(ErrorCode::kAborted, "second")));
  CHECK(signal.raised());
  const Error thrown = errorOf([&] { signal.throwIfRaised(); });
  CHECK(thrown.what() == std::string("first"));
  CHECK(thrown.rank() == 1);
}

TEST_CASE("of many who raise a signal at once exactly one is first") {
  for (int round = 0; round < 100; ++round) {
    AbortSignal signal;
    std::atomic<int> firsts{0};
    runRanks(4, [&](int rank) {
      if (signal.raise(Error(ErrorCode::kAborted, str(rank), rank))) ++firsts;
      expect(signal.raised() && signal.reason().has_value(), "raised without a reason");
    });
    CHECK(firsts.load() == 1);
  }
}

}  // namespace
}  // namespace taco
