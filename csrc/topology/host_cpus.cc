#include "csrc/topology/host_cpus.h"

#include <sched.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "csrc/base/format.h"

namespace taco {
namespace {

std::string firstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

int ceilCpus(double quota, double period) {
  if (quota <= 0 || period <= 0) return 0;
  const double cpus = std::ceil(quota / period);
  return cpus > 1e6 ? 0 : static_cast<int>(cpus);  // more than any machine has: no limit
}

// This process's path in the cgroup v2 tree, "" for the root (or where only v1 exists).
std::string ownCgroup(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("0::", 0) == 0) return line.substr(3) == "/" ? "" : line.substr(3);
  }
  return "";
}

}  // namespace

std::string affinityList() {
  // A machine with more CPUs than cpu_set_t holds needs a larger set.
  for (int maxCpus = 1024; maxCpus <= 1 << 16; maxCpus *= 4) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(maxCpus));
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(maxCpus));
    CPU_ZERO_S(bytes, set);
    std::string list;
    const bool known = ::sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; known && cpu < maxCpus; ++cpu) {
      if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set))
        list += str(list.empty() ? "" : ",", cpu);
    }
    CPU_FREE(set);
    if (known) return list;
  }
  return "0";
}

int cgroupCpuLimit(const std::string& root) {
  int limit = 0;
  auto tighten = [&limit](int cpus) {
    if (cpus > 0 && (limit == 0 || cpus < limit)) limit = cpus;
  };
  // Version 2: the tightest on the way up counts.
  std::string group = ownCgroup(root);
  while (true) {
    std::istringstream line(firstLine(root + "/sys/fs/cgroup" + group + "/cpu.max"));
    std::string quota;
    double period = 0;
    if (line >> quota >> period && quota != "max")
      tighten(ceilCpus(std::atof(quota.c_str()), period));
    if (group.empty()) break;
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
  // Version 1.
  for (const char* folder : {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"}) {
    const std::string quota = firstLine(root + folder + "/cpu.cfs_quota_us");
    const std::string period = firstLine(root + folder + "/cpu.cfs_period_us");
    if (!quota.empty() && !period.empty()) {
      tighten(ceilCpus(std::atof(quota.c_str()), std::atof(period.c_str())));
    }
  }
  return limit;
}

std::string bootId() {
  const std::string id = firstLine("/proc/sys/kernel/random/boot_id");
  return id.empty() ? hostName() : id;
}

std::string hostName() {
  char name[256] = {};
  if (::gethostname(name, sizeof(name) - 1) != 0) return "unknown host";
  return name;
}

std::set<int> parseCpuList(const std::string& list) {
  std::set<int> cpus;
  std::istringstream parts(list);
  std::string part;
  while (std::getline(parts, part, ',')) cpus.insert(std::atoi(part.c_str()));
  return cpus;
}

}  // namespace taco
