#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace taco {

// What the launch helper needs to know of the world besides environment variables. Tests fill these
// in; systemSeams() asks the machine.
struct LaunchSeams {
  // The text of a file, or nothing when it cannot be read.
  std::function<std::optional<std::string>(const std::string& path)> readFile;
  // The names in a directory; none when it cannot be read.
  std::function<std::vector<std::string>(const std::string& path)> listDirectory;
  // Where a symbolic link points, or nothing.
  std::function<std::optional<std::string>(const std::string& path)> readLink;
  // Names and addresses of this host: the host name first, then one address per interface.
  std::function<std::vector<std::string>()> ownNames;
  // Where /proc is; another folder in tests.
  std::string procRoot = "/proc";
};

LaunchSeams systemSeams(const std::string& procRoot = "/proc");

}  // namespace taco
