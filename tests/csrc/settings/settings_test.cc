#include "csrc/settings/settings.h"

#include <cstdlib>

#include "tests/csrc/ranks.h"

namespace taco {
namespace {

using namespace taco::testing;
using Catch::Matchers::ContainsSubstring;

const char* const kNames[] = {"LIGHT_2D_ALLREDUCE",
                              "LIGHT_INTRA_SIZE",
                              "LIGHT_HIERARCHICAL_THRESHOLD",
                              "LIGHT_TOPK_ALLREDUCE",
                              "LIGHT_TOPK_RATIO",
                              "LIGHT_TOPK_THRESHOLD",
                              "LIGHT_TOPK_FP16",
                              "TACO_TOPK_WARMUP_STEPS",
                              "TACO_SHM",
                              "TACO_NODE_ID",
                              "TACO_SOCKET_IFNAME",
                              "TACO_TRANSPORT",
                              "TACO_MPI_LIBRARY",
                              "TACO_LOG",
                              "TACO_DUMP_DIR",
                              "TACO_LAUNCHER",
                              "TACO_RANK",
                              "TACO_WORLD_SIZE",
                              "TACO_LOCAL_RANK",
                              "TACO_LOCAL_WORLD_SIZE",
                              "TACO_ROLE"};

Settings with(const std::string& name, const std::string& value) {
  return readSettings({{name, value}, {"PATH", "/bin"}, {"TACOMA", "a city"}, {"LIGHTS", "on"}});
}

TEST_CASE("an empty environment gives the defaults, and so do empty values") {
  std::map<std::string, std::string> empty;
  for (const char* const name : kNames) empty[name] = "";
  for (const Settings& settings : {readSettings({}), readSettings(empty)}) {
    CHECK_FALSE(settings.intraSize);
    CHECK_FALSE(settings.allreduce2d);
    CHECK(settings.hierarchicalThreshold == 1073741824);
    CHECK_FALSE(settings.topkAllreduce);
    CHECK(settings.topkRatio == 0.01);
    CHECK(settings.topkThreshold == 1048576);
    CHECK_FALSE(settings.topkFp16);
    CHECK(settings.topkWarmupSteps == 0);
    CHECK(settings.useShm);
    CHECK(settings.nodeId.empty());
    CHECK(settings.socketInterface.empty());
    CHECK(settings.dumpFolder.empty());
    CHECK(settings.logLevel == LogLevel::kWarn);
  }
}

TEST_CASE("valid values") {
  CHECK(with("LIGHT_2D_ALLREDUCE", "0").allreduce2d == false);
  CHECK(with("LIGHT_2D_ALLREDUCE", "1").allreduce2d == true);
  CHECK(with("LIGHT_INTRA_SIZE", "1").intraSize == 1);
  CHECK(with("LIGHT_INTRA_SIZE", "2147483647").intraSize == 2147483647);
  CHECK(with("LIGHT_HIERARCHICAL_THRESHOLD", "0").hierarchicalThreshold == 0);
  CHECK(with("LIGHT_HIERARCHICAL_THRESHOLD", "18446744073709551615").hierarchicalThreshold ==
        UINT64_MAX);
  CHECK(with("LIGHT_TOPK_ALLREDUCE", "1").topkAllreduce);
  CHECK(with("LIGHT_TOPK_RATIO", "1").topkRatio == 1);
  CHECK(with("LIGHT_TOPK_RATIO", "0.001").topkRatio == 0.001);
  CHECK(with("LIGHT_TOPK_RATIO", "1e-3").topkRatio == 0.001);
  CHECK(with("LIGHT_TOPK_RATIO", ".5").topkRatio == 0.5);
  CHECK(with("LIGHT_TOPK_THRESHOLD", "0").topkThreshold == 0);
  CHECK(with("LIGHT_TOPK_FP16", "1").topkFp16);
  CHECK(with("TACO_TOPK_WARMUP_STEPS", "1000").topkWarmupSteps == 1000);
  CHECK_FALSE(with("TACO_SHM", "0").useShm);
  CHECK(with("TACO_SHM", "1").useShm);
  CHECK(with("TACO_NODE_ID", "any, text=^").nodeId == "any, text=^");
  CHECK(with("TACO_SOCKET_IFNAME", "eth0").socketInterface == "eth0");
  CHECK(with("TACO_TRANSPORT", "tcp").transport == TransportKind::kTcp);
  CHECK(with("TACO_TRANSPORT", "mpi").transport == TransportKind::kMpi);
  CHECK(with("TACO_MPI_LIBRARY", "/x/libmpi.so").mpiLibrary == "/x/libmpi.so");
  CHECK(with("TACO_DUMP_DIR", "/x/y").dumpFolder == "/x/y");
  CHECK(with("TACO_LOG", "error").logLevel == LogLevel::kError);
  CHECK(with("TACO_LOG", "warn").logLevel == LogLevel::kWarn);
  CHECK(with("TACO_LOG", "info").logLevel == LogLevel::kInfo);
  CHECK(with("TACO_LOG", "debug").logLevel == LogLevel::kDebug);
}

TEST_CASE("malformed values are errors that name the variable, its value and what is valid") {
  struct Bad {
    const char* name;
    std::vector<const char*> values;
    const char* valid;
  };
  const std::vector<Bad> all = {
      {"LIGHT_2D_ALLREDUCE",
       {"2", "-1", "true", "yes", " 1", "1 ", "0x1", "1.0", "+1", "01x"},
       "0 or 1"},
      {"LIGHT_INTRA_SIZE",
       {"0", "-4", "2147483648", "99999999999999999999999", "four", "4.5", "4 "},
       "a whole number from 1"},
      {"LIGHT_HIERARCHICAL_THRESHOLD",
       {"-1", "1G", "1e9", "18446744073709551616", "0x400"},
       "a whole number of bytes"},
      {"LIGHT_TOPK_ALLREDUCE", {"yes", "2"}, "0 or 1"},
      {"LIGHT_TOPK_RATIO",
       {"0", "-0.1", "1.01", "nan", "inf", "1%", "0x1p-4", " 0.1", "0.1 ", "1e", "0.0.1", "1e-400"},
       "a number above 0, up to 1"},
      {"LIGHT_TOPK_THRESHOLD", {"-1", "1M", "1e6"}, "a whole number of bytes"},
      {"LIGHT_TOPK_FP16", {"on", "16"}, "0 or 1"},
      {"TACO_TOPK_WARMUP_STEPS", {"-1", "1.5", "4294967296"}, "a whole number of steps"},
      {"TACO_SHM", {"on", "2", "-0", "\n1"}, "0 or 1"},
      {"TACO_TRANSPORT", {"MPI", "udp", " tcp"}, "tcp or mpi"},
      {"TACO_LOG", {"INFO", "trace", "2", "warn "}, "error, warn, info or debug"},
      {"TACO_RANK", {"-1", "one", "2147483648"}, "a whole number from 0"},
      {"TACO_WORLD_SIZE", {"0", "1 "}, "a whole number from 1"},
      {"TACO_LOCAL_RANK", {"-1", "0x1"}, "a whole number from 0"},
      {"TACO_LOCAL_WORLD_SIZE", {"0", "1.5"}, "a whole number from 1"},
  };
  for (const Bad& bad : all) {
    for (const char* const value : bad.values) {
      const Error error = errorOf([&] { with(bad.name, value); });
      INFO(error.what());
      CHECK(error.code() == ErrorCode::kInvalidSettings);
      CHECK_THAT(error.what(), ContainsSubstring(bad.name));
      CHECK_THAT(error.what(), ContainsSubstring(str("'", value, "'")));
      CHECK_THAT(error.what(), ContainsSubstring(bad.valid));
    }
  }
}

TEST_CASE("an unknown name of ours is an error that lists the valid ones") {
  for (const char* const name : {"LIGHT_INTRA", "TACO_SHMEM", "LIGHT_", "TACO_", "TACO_shm"}) {
    for (const char* const value : {"", "1"}) {
      const Error error = errorOf([&] { with(name, value); });
      INFO(error.what());
      CHECK(error.code() == ErrorCode::kInvalidSettings);
      CHECK_THAT(error.what(), ContainsSubstring(str("variable ", name, " ")));
      for (const char* const valid : kNames) CHECK_THAT(error.what(), ContainsSubstring(valid));
    }
  }
  // Others' names are none of our business.
  CHECK_NOTHROW(readSettings({{"MY_TACO_SHM", "x"}, {"light_intra_size", "x"}, {"TACO", "x"}}));
}

TEST_CASE("gloo's interface counts where ours is unset and it is one name") {
  auto interface = [](std::map<std::string, std::string> environment) {
    return readSettings(environment).socketInterface;
  };
  CHECK(interface({{"GLOO_SOCKET_IFNAME", "eth1"}}) == "eth1");
  CHECK(interface({{"GLOO_SOCKET_IFNAME", "eth1"}, {"TACO_SOCKET_IFNAME", "eth0"}}) == "eth0");
  CHECK(interface({{"GLOO_SOCKET_IFNAME", "eth1"}, {"TACO_SOCKET_IFNAME", ""}}) == "eth1");
  for (const char* const foreign : {"", "eth0,eth1", "^docker0", "=eth0"}) {
    CHECK(interface({{"GLOO_SOCKET_IFNAME", foreign}}).empty());
  }
}

TEST_CASE("what must agree, as it stands, unset as empty") {
  const auto values = mustAgree({{"LIGHT_INTRA_SIZE", "2"},
                                 {"TACO_NODE_ID", "a"},
                                 {"TACO_LOG", "info"},
                                 {"TACO_SOCKET_IFNAME", "eth0"},
                                 {"PATH", "/bin"}});
  const std::map<std::string, std::string> expected = {{"LIGHT_2D_ALLREDUCE", ""},
                                                       {"LIGHT_INTRA_SIZE", "2"},
                                                       {"LIGHT_HIERARCHICAL_THRESHOLD", ""},
                                                       {"LIGHT_TOPK_ALLREDUCE", ""},
                                                       {"LIGHT_TOPK_RATIO", ""},
                                                       {"LIGHT_TOPK_THRESHOLD", ""},
                                                       {"LIGHT_TOPK_FP16", ""},
                                                       {"TACO_TOPK_WARMUP_STEPS", ""},
                                                       {"TACO_SHM", ""},
                                                       {"TACO_TRANSPORT", ""}};
  CHECK(values == expected);
}

TEST_CASE("the process's environment arrives as a map") {
  ::setenv("TACO_TEST_VARIABLE", "a=b=c", 1);
  ::setenv("TACO_TEST_EMPTY", "", 1);
  const auto environment = processEnvironment();
  CHECK(environment.at("TACO_TEST_VARIABLE") == "a=b=c");
  CHECK(environment.at("TACO_TEST_EMPTY").empty());
  CHECK(environment.count("PATH") == 1);
  ::unsetenv("TACO_TEST_VARIABLE");
  ::unsetenv("TACO_TEST_EMPTY");
  CHECK(processEnvironment().count("TACO_TEST_VARIABLE") == 0);
}

TEST_CASE("the page of settings has every row, and rows only") {
  const std::string page = settingsMarkdown();
  size_t rows = 0;
  for (size_t at = page.find("\n| `"); at != std::string::npos; at = page.find("\n| `", at + 1)) {
    ++rows;
  }
  CHECK(rows == std::size(kNames));
  for (const char* const name : kNames) {
    CHECK_THAT(page, ContainsSubstring(str("\n| `", name, "` | ")));
  }
  CHECK_THAT(page, ContainsSubstring("1073741824"));
  CHECK(page.back() == '\n');
}

}  // namespace
}  // namespace taco
