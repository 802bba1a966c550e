#include "csrc/communicator/flight_dump.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "csrc/communicator/flight_json.h"
#include "csrc/communicator/flight_task.h"
#include "tests/csrc/communicator/group.h"

namespace taco {
namespace {

using namespace taco::testing;

// A folder that goes with the test.
class Folder {
 public:
  Folder() {
    char name[] = "/tmp/taco-flight-test-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().string());
    }
    return names;
  }

 private:
  std::string path_;
};

std::string contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

mode_t modeOf(const std::string& path) {
  struct stat facts {};
  REQUIRE(::lstat(path.c_str(), &facts) == 0);
  return facts.st_mode & 07777;
}

std::function<Environment(int, int)> dumpsInto(const std::string& folder) {
  return [folder](int, int) { return Environment{{"TACO_DUMP_DIR", folder}}; };
}

std::vector<FlightOperation> operationsOf(FlightState state) {
  std::vector<FlightOperation> found;
  for (const FlightOperation& one : FlightRecord::ofProcess().operations()) {
    if (one.state == state) found.push_back(one);
  }
  return found;
}

TEST_CASE("flight dump: what a group does is in the record") {
  FlightRecord::ofProcess().clear();
  Group group(2);
  runRanks(2, [&](int rank) {
    runOn(group[rank], [](Collectives& c) {
      allReduceOnes(c, 7);
      c.barrier();  // a second operation of one task is an entry of its own
    });
    std::vector<int32_t> word(3);
    const TicketPtr ticket = rank == 0 ? group[0].send(view(word), 1, 9, Millis(0), nullptr)
                                       : group[1].receive(view(word), -1, 9, Millis(0), nullptr);
    expect(ticket->wait(Deadline::after(Millis(60000))), "the message never came");
  });
  // A ticket is done a moment before those who follow it have heard of it.
  const Deadline deadline = Deadline::after(Millis(60000));
  while (!operationsOf(FlightState::kStarted).empty() && !deadline.expired()) {
    std::this_thread::yield();
  }
  int allReduces = 0, barriers = 0, sends = 0, receives = 0;
  for (const FlightOperation& one : operationsOf(FlightState::kDone)) {
    const bool ordered = one.queued <= one.started && one.started <= one.finished;
    CHECK(ordered);
    if (one.kind == FlightKind::kCollective && one.call.op == OpKind::kAllReduce) {
      ++allReduces;
      CHECK(one.call.sequence == 1);
      CHECK(one.call.count == 7);
      CHECK(one.call.reduceOp == ReduceOp::kSum);
    } else if (one.kind == FlightKind::kCollective && one.call.op == OpKind::kBarrier) {
      ++barriers;
      CHECK(one.call.sequence == 2);
    } else {
      sends += one.kind == FlightKind::kSend ? 1 : 0;
      receives += one.kind == FlightKind::kReceive ? 1 : 0;
      CHECK(one.tag == 9);
      CHECK(one.elements == 3);
      CHECK(one.call.root ==
            (one.kind == FlightKind::kSend ? 1 : 0));  // of any source: the found one
    }
  }
  CHECK(allReduces == 2);
  CHECK(barriers == 2);
  CHECK(sends == 1);
  CHECK(receives == 1);
}

TEST_CASE("flight dump: a failure is written down, for nobody else to read") {
  const Folder folder;
  const std::string inside = folder.path() + "/a/b";
  {
    Group group(2, dumpsInto(inside));
    group[0].setTimeout(Millis(300));
    // Rank 1 does not come.
    const Error error =
        errorOf([&] { runOn(group[0], [](Collectives& c) { allReduceOnes(c, 5); }); });
    CHECK(error.code() == ErrorCode::kTimeout);
  }
  REQUIRE(std::filesystem::is_directory(inside));
  CHECK(modeOf(inside) == 0700);
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(inside)) {
    files.push_back(entry.path().string());
  }
  REQUIRE(files.size() == 1);
  CHECK(contains(files[0], "/rank-"));
  CHECK(contains(files[0], str("-", ::getpid(), ".json")));
  CHECK(modeOf(files[0]) == 0600);
  const std::string text = contents(files[0]);
  CHECK(contains(text, "\"format\": \"taco-flight-record\", \"version\": 1"));
  CHECK(contains(text, "\"op\": \"all_reduce\""));
  CHECK(contains(text, "\"state\": \"failed\""));
  CHECK(contains(text, "Timed out"));
  CHECK(contains(text, "\"count\": 5"));
}

TEST_CASE("flight dump: a folder that cannot be had is no second failure") {
  const Folder folder;
  const std::string file = folder.path() + "/file";
  std::ofstream(file) << "x";
  Group group(2, dumpsInto(file + "/below"));
  group[0].setTimeout(Millis(200));
  const Error error =
      errorOf([&] { runOn(group[0], [](Collectives& c) { allReduceOnes(c, 5); }); });
  CHECK(error.code() == ErrorCode::kTimeout);
  CHECK(contains(errorOf([&] { dumpFlightRecord(file + "/below", "asked"); }).what(), file));
  CHECK(folder.files().size() == 1);
}

TEST_CASE("flight dump: none writes nothing") {
  Settings settings;
  settings.dumpFolder = "none";
  CHECK_FALSE(flightFolder(settings).has_value());
  settings.dumpFolder = "/some/where";
  CHECK(flightFolder(settings) == "/some/where");
  settings.dumpFolder = "";
  REQUIRE(flightFolder(settings).has_value());
  CHECK(contains(*flightFolder(settings), str("taco-dumps-", ::geteuid())));
}

TEST_CASE("flight dump: the default folder must be this user's own") {
  const Folder temporary;
  // In a child: the folder for temporary files is asked of the environment.
  auto childSays = [&](const std::function<bool(const std::string& folder)>& body) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::setenv("TMPDIR", temporary.path().c_str(), 1);
      bool ok = false;
      try {
        ok = body(*flightFolder(Settings()));
      } catch (...) {
        ok = false;
      }
      ::_exit(ok ? 0 : 1);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return status == 0;
  };
  auto refused = [](const std::string& folder) {
    try {
      dumpFlightRecord(folder, "asked");
    } catch (const Error& error) {
      return contains(error.what(), "belongs to this user");
    }
    return false;
  };
  const std::string folder = temporary.path() + str("/taco-dumps-", ::geteuid());
  CHECK(childSays([](const std::string& it) { return modeOf(dumpFlightRecord(it, "")) == 0600; }));
  CHECK(modeOf(folder) == 0700);
  REQUIRE(::chmod(folder.c_str(), 0777) == 0);
  CHECK(childSays(refused));
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(temporary.path() + "/elsewhere");
  std::filesystem::create_directory_symlink(temporary.path() + "/elsewhere", folder);
  CHECK(childSays(refused));
  CHECK(std::filesystem::is_empty(temporary.path() + "/elsewhere"));
}

TEST_CASE("flight dump: only the newest stay in the default folder") {
  const Folder temporary;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::setenv("TMPDIR", temporary.path().c_str(), 1);
    const std::string folder = *flightFolder(Settings());
    dumpFlightRecord(folder, "");
    for (int i = 0; i < 300; ++i) {
      const std::string old = str(folder, "/rank-0-old-", i, ".json");
      std::ofstream(old) << "{}";
      const timespec long_ago[2] = {{1000, 0}, {1000, 0}};
      ::utimensat(AT_FDCWD, old.c_str(), long_ago, 0);
    }
    std::ofstream(folder + "/mine.txt") << "x";
    const std::string path = dumpFlightRecord(folder, "");
    const auto left = std::distance(std::filesystem::directory_iterator(folder), {});
    ::_exit(left == 257 && std::filesystem::exists(path) ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("flight dump: what never ran fails with its group") {
  FlightRecord::ofProcess().clear();
  Group group(2, dumpsInto("none"));
  std::vector<int32_t> word(3);
  const TicketPtr ticket = group[1].receive(view(word), 0, 4, Millis(0), nullptr);
  group[1].abort("enough");
  CHECK(ticket->error().has_value());  // abort() returns when everybody has heard of it
  const auto failed = operationsOf(FlightState::kFailed);
  REQUIRE(failed.size() == 1);
  CHECK(failed[0].kind == FlightKind::kReceive);
  CHECK(contains(failed[0].error, "enough"));
}

TEST_CASE("flight dump: any text becomes JSON") {
  FlightDump dump;
  dump.host = "quote \" backslash \\ newline \n";
  dump.reason = "not UTF-8: \xff, \xc3";
  const std::string odd = toJson(dump);
  CHECK(contains(odd, R"("quote \" backslash \\ newline \u000a")"));
  CHECK(contains(odd, "\"not UTF-8: ?, ?\""));
  dump.reason = "\xc3\xa4\xe2\x82\xac\xf0\x9f\x8c\xae";
  CHECK(contains(toJson(dump), "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x8c\xae\""));
  dump.reason = "\xed\xa0\x80";  // half of a surrogate pair
  CHECK(contains(toJson(dump), "\"???\""));
}

TEST_CASE("flight dump: groups that have ended are remembered for a while") {
  const size_t living = FlightGroups::all().size();
  for (int i = 0; i < 200; ++i) {
    const auto group = std::make_shared<FlightGroup>();
    FlightGroups::add(group);
    FlightGroups::end(*group, i % 2 ? std::optional<std::string>("why") : std::nullopt);
    FlightGroups::end(*group, "later");
  }
  const auto all = FlightGroups::all();
  CHECK(all.size() <= living + FlightGroups::kMostEnded + 1);
  REQUIRE(all.back().end.has_value());
  CHECK(all.back().end->failure == "why");
}

}  // namespace
}  // namespace taco
