#include "launch/tf_config.h"

#include "csrc/base/format.h"
#include "tests/launch/launching.h"

namespace taco {
namespace {

using namespace taco::testing;

std::string config(const std::string& cluster, const std::string& task) {
  return str("{\"cluster\": ", cluster, ", \"task\": ", task, "}");
}

// chief, 2 workers, 1 ps
const char* const kCluster =
    R"({"ps": ["p0:1"], "worker": ["w0:1", "w1:1"], "chief": ["c:1"], "evaluator": ["e:1"]})";

TEST_CASE("the TI guide's TF_CONFIG: workers first, then ps") {
  const auto cluster = parseTfConfig(kTiTfConfig);
  REQUIRE(cluster);
  REQUIRE(cluster->tasks.size() == 4);
  const char* const roles[] = {"worker", "worker", "ps", "ps"};
  for (int i = 0; i < 4; ++i) {
    CHECK(cluster->tasks[i].role == roles[i]);
    CHECK(cluster->tasks[i].index == i % 2);
    CHECK(cluster->tasks[i].address.port == 2222);
  }
  CHECK(cluster->tasks[0].address.host ==
        "train-960252492096760832-7an13ppfli80-worker-0.train-100031385875.svc");
  CHECK(cluster->rank == 2);
  CHECK(cluster->summary() == "2 worker, 2 ps");
}

TEST_CASE("chief, workers, ps, in this order, from every task's point of view") {
  const auto rankOf = [](const std::string& type, const std::string& index) {
    return parseTfConfig(
               config(kCluster, str("{\"type\": \"", type, "\", \"index\": ", index, "}")))
        ->rank;
  };
  CHECK(rankOf("chief", "0") == 0);
  CHECK(rankOf("master", "0") == 0);  // the older name
  CHECK(rankOf("worker", "0") == 1);
  CHECK(rankOf("worker", "\"1\"") == 2);  // as text
  CHECK(rankOf("ps", "0") == 3);
  // Without an index: the only one of its kind.
  CHECK(parseTfConfig(config(kCluster, R"({"type": "ps"})"))->rank == 3);
  // The older name in the cluster.
  const auto old = parseTfConfig(
      config(R"({"master": ["m:1"], "ps": ["p:1"]})", R"({"type": "master", "index": 0})"));
  CHECK(old->rank == 0);
  CHECK(old->tasks[0].role == "chief");
}

TEST_CASE("a TF_CONFIG without a cluster is that of a single process") {
  CHECK_FALSE(parseTfConfig("{}"));
  CHECK_FALSE(parseTfConfig(R"({"cluster": {}})"));
  CHECK_FALSE(parseTfConfig(R"({"environment": "cloud"})"));
}

TEST_CASE("what is no TF_CONFIG is refused (E1), with what is wrong") {
  const std::pair<std::string, const char*> all[] = {
      {"worker", "is no JSON (at byte 1)"},
      {"{\"cluster\": {", "is no JSON"},
      {"[]", "must be a JSON object"},
      {"3", "must be a JSON object"},
      {R"({"cluster": 3})", "cluster that is no object"},
      {config(R"({"worker": "w:1"})", R"({"type": "worker", "index": 0})"), "no list"},
      {config(R"({"worker": [1]})", R"({"type": "worker", "index": 0})"), "cluster.worker[0]"},
      {config(R"({"ps": ["p:1"]})", R"({"type": "ps", "index": 0})"), "without a worker or chief"},
      {R"({"cluster": {"worker": ["w:1"]}})", "no task"},
      {config(kCluster, "3"), "no task"},
      {config(kCluster, R"({"index": 0})"), "no task"},
      {config(kCluster, R"({"type": "evaluator", "index": 0})"), "it has 1 chief, 2 worker, 1 ps"},
      {config(kCluster, R"({"type": "worker", "index": 0.5})"), "task.index '0.5'"},
      {config(kCluster, R"({"type": "worker", "index": "one"})"), "task.index 'one'"},
      {std::string(100000, '['), "is no JSON"},
  };
  for (const auto& [text, why] : all) {
    const std::string input = text;
    refusal(LaunchRule::kE1, [&] { parseTfConfig(input); }, {"TF_CONFIG", why});
  }
}

TEST_CASE("an index outside its list is E2, an address given twice E3, no address E8") {
  refusal(LaunchRule::kE2,
          [] { parseTfConfig(config(kCluster, R"({"type": "worker", "index": 2})")); },
          {"task.index 2", "cluster.worker has 2 entries", "from 0 to 1"});
  refusal(LaunchRule::kE2,
          [] { parseTfConfig(config(kCluster, R"({"type": "ps", "index": -1})")); },
          {"task.index -1", "cluster.ps has 1 entry"});
  refusal(LaunchRule::kE3,
          [] {
            parseTfConfig(config(R"({"worker": ["a:1", "b:1"], "ps": ["a:1"]})",
                                 R"({"type": "ps", "index": 0})"));
          },
          {"worker 0 and ps 0", "'a:1'"});
  refusal(LaunchRule::kE8,
          [] { parseTfConfig(config(R"({"worker": ["a b:1"]})", R"({"type": "worker"})")); },
          {"cluster.worker[0] of TF_CONFIG", "'a b:1'"});
  refusal(LaunchRule::kE6,
          [] { parseTfConfig(config(R"({"worker": ["a:66660"]})", R"({"type": "worker"})")); },
          {"cluster.worker[0] of TF_CONFIG", "66660"});
}

}  // namespace
}  // namespace taco
