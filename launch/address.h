#pragma once

#include <optional>
#include <string>

namespace taco {

enum class HostKind { kName, kIpv4, kIpv6 };

struct Address {
  std::string host;  // without brackets
  std::optional<int> port;
  HostKind kind = HostKind::kName;

  bool operator==(const Address&) const = default;
};

// A host, IPv4, IPv6 or [IPv6], the first two and the last with or without ":port". Throws
// LaunchError (E8 what is no address, E6 a port outside 1-65535); `origin` is what the text came
// from, "MASTER_ADDR".
Address parseAddress(const std::string& text, const std::string& origin);

// 1 to 65535, or LaunchError: E1 what is no number, E6 what is no port.
int parsePort(const std::string& text, const std::string& origin);

// 127.0.0.0/8, ::1, 0.0.0.0, ::, localhost: addresses that lead another host to itself.
bool isLoopback(const std::string& host);

// "host:port", "[IPv6]:port".
std::string hostAndPort(const std::string& host, int port);

}  // namespace taco
