#include "launch/seams.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <memory>

namespace taco {
namespace {

// A hostfile of a million hosts; not a device that never ends.
constexpr std::streamsize kLongestFile = 64 << 20;

std::optional<std::string> readFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text;
  std::array<char, 65536> part;
  while (file.read(part.data(), part.size()) || file.gcount() > 0) {
    text.append(part.data(), static_cast<size_t>(file.gcount()));
    if (static_cast<std::streamsize>(text.size()) > kLongestFile) return std::nullopt;
  }
  return file.bad() ? std::nullopt : std::optional<std::string>(text);
}

std::vector<std::string> listDirectory(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), &::closedir);
  std::vector<std::string> names;
  if (directory == nullptr) return names;
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  return names;
}

std::optional<std::string> readLink(const std::string& path) {
  std::array<char, 4096> target;
  const ssize_t length = ::readlink(path.c_str(), target.data(), target.size());
  if (length < 0) return std::nullopt;
  return std::string(target.data(), static_cast<size_t>(length));
}

std::vector<std::string> ownNames() {
  std::vector<std::string> names;
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) == 0) names.push_back(host.data());
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return names;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(first, &::freeifaddrs);
  std::array<char, INET6_ADDRSTRLEN> text;
  for (const ifaddrs* one = all.get(); one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const void* address = nullptr;
    const int family = one->ifa_addr->sa_family;
    if (family == AF_INET) address = &reinterpret_cast<sockaddr_in*>(one->ifa_addr)->sin_addr;
    if (family == AF_INET6) address = &reinterpret_cast<sockaddr_in6*>(one->ifa_addr)->sin6_addr;
    if (address != nullptr && ::inet_ntop(family, address, text.data(), text.size()) != nullptr) {
      names.push_back(text.data());
    }
  }
  return names;
}

}  // namespace

LaunchSeams systemSeams(const std::string& procRoot) {
  return {readFile, listDirectory, readLink, ownNames, procRoot};
}

}  // namespace taco
