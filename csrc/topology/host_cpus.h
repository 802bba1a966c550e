#pragma once

#include <set>
#include <string>

namespace taco {

// The CPUs that this process may run on, "0,1,5", by its affinity mask.
std::string affinityList();

// How many CPUs' worth of time the cgroup grants (cpu.max, cgroup v1's cfs quota), rounded up;
// 0 where there is no limit. `root` stands for "/" in tests.
int cgroupCpuLimit(const std::string& root = "");

// Names the running kernel: /proc/sys/kernel/random/boot_id, or the host name where /proc is not.
std::string bootId();

std::string hostName();

std::set<int> parseCpuList(const std::string& list);

}  // namespace taco
