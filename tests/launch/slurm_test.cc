#include "launch/slurm.h"

#include "tests/launch/launching.h"

namespace taco {
namespace {

using namespace taco::testing;
using Names = std::vector<std::string>;

Names nodes(const std::string& text) { return parseSlurmNodes(text, "SLURM_STEP_NODELIST"); }
std::vector<int> tasks(const std::string& text) {
  return parseSlurmTasks(text, "SLURM_STEP_TASKS_PER_NODE");
}

TEST_CASE("Slurm's node lists") {
  CHECK(nodes("node[01-03,7],x") == Names{"node01", "node02", "node03", "node7", "x"});
  CHECK(nodes("x") == Names{"x"});
  CHECK(nodes("a,b") == Names{"a", "b"});
  CHECK(nodes("n[8-11]") == Names{"n8", "n9", "n10", "n11"});
  CHECK(nodes("n[098-101]-ib") == Names{"n098-ib", "n099-ib", "n100-ib", "n101-ib"});
  CHECK(nodes("r[1-2]n[1-2]") == Names{"r1n1", "r1n2", "r2n1", "r2n2"});
  CHECK(nodes("n[5]") == Names{"n5"});
  CHECK(nodes("n[0-65535]").size() == 65536);
}

TEST_CASE("node lists that are refused (E1) at once, however large they would be") {
  for (const char* const text : {"",
                                 ",",
                                 "a,",
                                 "n[",
                                 "n[1",
                                 "n]",
                                 "n[]",
                                 "n[1-]",
                                 "n[-1]",
                                 "n[3-1]",
                                 "n[a-b]",
                                 "n[[1]]",
                                 "n[1]]",
                                 "n[1-65537]",
                                 "n[0-999999999]",
                                 "n[0-9999999999]",
                                 "r[1-999]n[1-999]",
                                 "a b",
                                 "a/b",
                                 "n[1,]"}) {
    refusal(LaunchRule::kE1, [&] { nodes(text); }, {"SLURM_STEP_NODELIST is '", text});
  }
}

TEST_CASE("Slurm's tasks per node") {
  CHECK(tasks("2(x3),1") == std::vector<int>{2, 2, 2, 1});
  CHECK(tasks("4") == std::vector<int>{4});
  CHECK(tasks("8,4") == std::vector<int>{8, 4});
  CHECK(tasks("1(x1)") == std::vector<int>{1});
}

TEST_CASE("task lists that are refused (E1)") {
  for (const char* const text : {"", "x", "2(", "2(x", "2(x)", "2(x0)", "2(3)", "2(x3", "2x3", "-1",
                                 "2(x99999999)", "1,", "2(x3)1", "(x3)"}) {
    refusal(LaunchRule::kE1, [&] { tasks(text); }, {"SLURM_STEP_TASKS_PER_NODE is '", text});
  }
}

}  // namespace
}  // namespace taco
