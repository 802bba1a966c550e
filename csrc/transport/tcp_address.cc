#include "csrc/transport/tcp_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include "csrc/base/error.h"
#include "csrc/base/format.h"

namespace taco {
namespace {

struct Interface {
  std::string name;
  std::string host;
  int family;
  bool up;
  bool loopback;
};

std::string numericHost(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
      inet_ntop(AF_INET, &v6->sin6_addr.s6_addr[12], text, sizeof text);
    } else {
      inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    }
  }
  return text;
}

bool isLoopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
  if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) return v6->sin6_addr.s6_addr[12] == 127;
  return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

// One entry an address. Link-local IPv6 is left out: it means nothing without a scope, which
// differs between machines.
std::vector<Interface> listInterfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (family == AF_INET6) {
      const auto* v6 = reinterpret_cast<const sockaddr_in6*>(at->ifa_addr);
      if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) continue;
    }
    found.push_back({at->ifa_name, numericHost(at->ifa_addr), family, (at->ifa_flags & IFF_UP) != 0,
                     (at->ifa_flags & IFF_LOOPBACK) != 0});
  }
  // IPv4 first within the order of the kernel: it is what clusters have on every node.
  std::stable_sort(found.begin(), found.end(), [](const Interface& a, const Interface& b) {
    return a.family == AF_INET && b.family != AF_INET;
  });
  return found;
}

bool belongsToContainers(const std::string& interface) {
  for (const char* prefix :
       {"docker", "veth", "virbr", "br-", "cni", "flannel", "cali", "podman", "lxc"}) {
    if (interface.rfind(prefix, 0) == 0) return true;
  }
  return false;
}

std::string hostOfInterfaces(const std::string& interfaces) {
  const std::vector<Interface> present = listInterfaces();
  std::istringstream names(interfaces);
  for (std::string wanted; std::getline(names, wanted, ',');) {
    for (const Interface& interface : present) {
      if (interface.name == wanted && interface.up) return interface.host;
    }
  }
  std::string valid;
  for (const Interface& interface : present) {
    if (!interface.up) continue;
    valid += str(valid.empty() ? "" : ", ", interface.name, " (", interface.host, ")");
  }
  throw Error(
      ErrorCode::kInvalidSettings,
      str("TACO_SOCKET_IFNAME (or GLOO_SOCKET_IFNAME) is '", interfaces,
          "', but this machine has no such interface that is up and has an address; it has: ",
          valid.empty() ? "none" : valid));
}

// The local end of the route to `remote`. Connecting a UDP socket asks the routing table and sends
// nothing.
std::optional<std::string> routeTo(const addrinfo& remote) {
  const int fd = ::socket(remote.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::nullopt;
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  const bool known = ::connect(fd, remote.ai_addr, remote.ai_addrlen) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) == 0;
  ::close(fd);
  const auto* address = reinterpret_cast<const sockaddr*>(&local);
  if (!known || isLoopback(address)) return std::nullopt;
  if (local.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&local);
    if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) return std::nullopt;
  }
  return numericHost(address);
}

std::optional<std::string> hostOfRoute(std::string hint) {
  if (hint.size() > 2 && hint.front() == '[' && hint.back() == ']') {
    hint = hint.substr(1, hint.size() - 2);  // as people write IPv6 in MASTER_ADDR
  }
  if (hint.empty()) return std::nullopt;
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* first = nullptr;
  // Any port will do: nothing is sent.
  if (getaddrinfo(hint.c_str(), "9", &wanted, &first) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(first, freeaddrinfo);
  for (const addrinfo* at = first; at != nullptr; at = at->ai_next) {
    if (at->ai_family != AF_INET && at->ai_family != AF_INET6) continue;
    if (auto host = routeTo(*at)) return host;
  }
  return std::nullopt;
}

}  // namespace

std::string TcpAddress::hostAndPort() const {
  return host.find(':') == std::string::npos ? str(host, ":", port) : str("[", host, "]:", port);
}

std::string TcpAddress::encode() const { return hostAndPort() + " " + networkId; }

TcpAddress TcpAddress::decode(const std::string& text) {
  const size_t space = text.find(' ');
  const std::string where = text.substr(0, space);
  const size_t colon = where.rfind(':');
  TcpAddress address;
  if (space != std::string::npos && colon != std::string::npos && colon > 0) {
    address.host = where.substr(0, colon);
    if (address.host.front() == '[' && address.host.back() == ']') {
      address.host = address.host.substr(1, address.host.size() - 2);
    }
    address.networkId = text.substr(space + 1);
    const char* end = where.data() + where.size();
    const auto [stop, failure] = std::from_chars(where.data() + colon + 1, end, address.port);
    if (failure == std::errc() && stop == end &&
        socketAddress(address.host, address.port).length > 0) {
      return address;
    }
  }
  throw Error(ErrorCode::kSystem,
              str("a rank published '", text, "' as its address, which is not one of TACO's: ",
                  "the ranks probably run different versions of TACO"));
}

std::string localNetworkId() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat status {};
  if (boot.empty() || ::stat("/proc/self/ns/net", &status) != 0) return "";
  return str(boot, "/", status.st_dev, "/", status.st_ino);
}

std::string chooseHost(const std::string& interfaces, const std::string& routeHint) {
  if (!interfaces.empty()) return hostOfInterfaces(interfaces);
  if (auto host = hostOfRoute(routeHint)) return *host;
  const std::vector<Interface> present = listInterfaces();
  for (const Interface& interface : present) {
    if (interface.up && !interface.loopback && !belongsToContainers(interface.name)) {
      return interface.host;
    }
  }
  for (const Interface& interface : present) {
    if (interface.up && interface.loopback) return interface.host;
  }
  return "127.0.0.1";
}

SocketAddress socketAddress(const std::string& host, uint16_t port) {
  SocketAddress address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    address.length = sizeof *v4;
  } else if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    address.length = sizeof *v6;
  }
  return address;
}

}  // namespace taco
