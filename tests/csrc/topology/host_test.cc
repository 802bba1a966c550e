// What a rank knows of its host: CPUs, limits, and the proof that memory is shared.
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "csrc/topology/host_cpus.h"
#include "csrc/topology/node_proof.h"
#include "tests/csrc/forked_ranks.h"
#include "tests/csrc/ranks.h"

namespace taco {
namespace {

using namespace taco::testing;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

// A folder that stands for "/".
struct FakeRoot {
  FakeRoot() : path(str("/tmp/taco-test-root-", randomHex(8))) { fs::create_directories(path); }
  ~FakeRoot() { fs::remove_all(path); }
  void write(const std::string& file, const std::string& text) const {
    fs::create_directories(fs::path(path + file).parent_path());
    std::ofstream(path + file) << text;
  }
  std::string path;
};

TEST_CASE("no cgroup files, or nothing but max: no limit") {
  const FakeRoot root;
  CHECK(cgroupCpuLimit(root.path) == 0);
  root.write("/proc/self/cgroup", "0::/\n");
  root.write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  CHECK(cgroupCpuLimit(root.path) == 0);
}

TEST_CASE("cgroup version 2: the tightest quota on the way up, rounded up") {
  const FakeRoot root;
  root.write("/proc/self/cgroup", "1:name=systemd:/x\n0::/a/b\n");
  root.write("/sys/fs/cgroup/a/b/cpu.max", "250000 100000\n");
  CHECK(cgroupCpuLimit(root.path) == 3);
  root.write("/sys/fs/cgroup/a/cpu.max", "200000 100000\n");
  CHECK(cgroupCpuLimit(root.path) == 2);
  root.write("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
  root.write("/sys/fs/cgroup/cpu.max", "10000 100000\n");
  CHECK(cgroupCpuLimit(root.path) == 1);
}

TEST_CASE("cgroup version 1") {
  for (const char* const folder : {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"}) {
    const FakeRoot root;
    root.write(str(folder, "/cpu.cfs_period_us"), "100000\n");
    root.write(str(folder, "/cpu.cfs_quota_us"), "-1\n");
    CHECK(cgroupCpuLimit(root.path) == 0);
    root.write(str(folder, "/cpu.cfs_quota_us"), "400000\n");
    CHECK(cgroupCpuLimit(root.path) == 4);
  }
}

TEST_CASE("strange cgroup files say nothing") {
  for (const char* const text : {"", "\n", "garbage", "100000", "100000 0", "-5 100000", "max",
                                 "0 100000", "1e999 100000"}) {
    const FakeRoot root;
    root.write("/proc/self/cgroup", "0::/\n");
    root.write("/sys/fs/cgroup/cpu.max", text);
    INFO(text);
    CHECK(cgroupCpuLimit(root.path) == 0);
  }
  const FakeRoot root;
  root.write("/proc/self/cgroup", "0::relative\nnonsense\n");
  CHECK(cgroupCpuLimit(root.path) == 0);
}

TEST_CASE("the real machine") {
  CHECK(cgroupCpuLimit() >= 0);
  CHECK_FALSE(bootId().empty());
  CHECK(bootId() == bootId());
  CHECK_FALSE(hostName().empty());
  CHECK(parseCpuList(affinityList()).size() >= 1);
}

TEST_CASE("the affinity list follows the mask") {
  const std::set<int> all = parseCpuList(affinityList());
  std::thread bound([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(*all.rbegin(), &one);
    if (::sched_setaffinity(0, sizeof(one), &one) != 0) return;
    const std::string list = affinityList();
    if (list != str(*all.rbegin())) std::abort();
  });
  bound.join();
  CHECK(parseCpuList("") == std::set<int>{});
  CHECK(parseCpuList("3,1,2,3") == std::set<int>{1, 2, 3});
}

TEST_CASE("a proof holds exactly its token, and is gone afterwards") {
  std::string path;
  std::string token;
  {
    const NodeProof proof;
    REQUIRE(proof.whyNot().empty());
    path = proof.path();
    token = proof.token();
    CHECK(NodeProof::holds(path, token));
    CHECK_FALSE(NodeProof::holds(path, token.substr(1)));
    CHECK_FALSE(NodeProof::holds(path, token + "0"));
    CHECK_FALSE(NodeProof::holds(path, std::string(token.size(), '0')));
    CHECK_FALSE(NodeProof::holds(path + "x", token));
    CHECK_FALSE(NodeProof::holds("", token));
    CHECK_FALSE(NodeProof::holds("/dev/shm", token));
    ForkedRanks child(1, [&](int, ForkedRanks::Shared&) {
      proof.~NodeProof();  // a forked child's copy
      return str(NodeProof::holds(path, token));
    });
    CHECK(child.outcome(0) == "1");
    CHECK(NodeProof::holds(path, token));
  }
  CHECK_FALSE(fs::exists(path));
  CHECK_FALSE(NodeProof::holds(path, token));
}

TEST_CASE("a proof is no symbolic link's") {
  const NodeProof proof;
  const std::string link = "/dev/shm/taco-test-" + randomHex(8);
  REQUIRE(::symlink(proof.path().c_str(), link.c_str()) == 0);
  CHECK_FALSE(NodeProof::holds(link, proof.token()));
  ::unlink(link.c_str());
}

}  // namespace
}  // namespace taco
