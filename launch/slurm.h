#pragma once

#include <string>
#include <vector>

namespace taco {

// Slurm's host list, "node[01-03,7],x": every host, in order. Several brackets in one name multiply
// ("r[1-2]n[1-2]"). Throws LaunchError (E1), also where a range has more than 65536 hosts.
std::vector<std::string> parseSlurmNodes(const std::string& text, const std::string& origin);

// Slurm's tasks per node, "2(x3),1": {2, 2, 2, 1}. Throws LaunchError (E1).
std::vector<int> parseSlurmTasks(const std::string& text, const std::string& origin);

}  // namespace taco
