#include "launch/address.h"

#include <arpa/inet.h>
#include <net/if.h>

#include <algorithm>
#include <cctype>

#include "csrc/base/format.h"
#include "launch/launch_error.h"
#include "launch/text.h"

namespace taco {
namespace {

constexpr int kHighestPort = 65535;
constexpr size_t kLongestName = 253;
constexpr size_t kLongestLabel = 63;

[[noreturn]] void refuse(const std::string& text, const std::string& origin,
                         const std::string& why) {
  throw LaunchError(LaunchRule::kE8,
                    str(origin, " is ", inQuotes(text), ", which is no address: ", why,
                        "; give a host name, an IPv4 address, or an IPv6 address with or without "
                        "brackets, such as node-0, 10.0.0.1, fd00::1 or [fd00::1]"));
}

bool isIpv4(const std::string& text) {
  in_addr address;
  return ::inet_pton(AF_INET, text.c_str(), &address) == 1;
}

// With or without a zone, "fe80::1%eth0".
bool isIpv6(const std::string& text) {
  const size_t zone = text.find('%');
  if (zone != std::string::npos) {
    const std::string name = text.substr(zone + 1);
    const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-' || c == '@';
    });
    if (name.empty() || name.size() >= IF_NAMESIZE || !plain) return false;
  }
  in6_addr address;
  return ::inet_pton(AF_INET6, text.substr(0, zone).c_str(), &address) == 1;
}

// Letters, digits, '-', '_' (which container names have), labels between dots, at most a dot at the
// end; and not digits and dots alone, which the C library would read as an IPv4 address of another
// spelling: '29500' as 0.0.115.60.
std::string whyNoName(const std::string& text) {
  if (text.empty()) return "the host is empty";
  if (text.size() > kLongestName) return "a name has at most 253 characters";
  if (text.find_first_not_of("0123456789.") == std::string::npos) {
    return text.find('.') == std::string::npos ? "it is a plain number"
                                               : "an IPv4 address has four numbers from 0 to 255";
  }
  std::vector<std::string> labels = splitAt(text, '.');
  if (labels.size() > 1 && labels.back().empty()) labels.pop_back();
  for (const std::string& label : labels) {
    if (label.empty()) return "there is nothing between two dots";
    if (label.size() > kLongestLabel) return "a part between dots has at most 63 characters";
    for (const char c : label) {
      if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_') {
        return str("it has the character ", inQuotes(std::string(1, c)));
      }
    }
  }
  return "";
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace

int parsePort(const std::string& text, const std::string& origin) {
  if (const std::optional<int> port = wholeNumber(text); port && *port >= 1) {
    if (*port <= kHighestPort) return *port;
  } else if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) {
    const bool isNegative = text.size() > 1 && text[0] == '-' &&
                            text.find_first_not_of("0123456789", 1) == std::string::npos;
    if (!isNegative) {
      throw LaunchError(LaunchRule::kE1,
                        str(origin, " is ", inQuotes(text),
                            ", but must be a port: a whole number from 1 to 65535"));
    }
  }
  throw LaunchError(LaunchRule::kE6, str(origin, " is ", inQuotes(text),
                                         ", but ports go from 1 to 65535; choose one of these"));
}

Address parseAddress(const std::string& text, const std::string& origin) {
  if (text.find("://") != std::string::npos) refuse(text, origin, "it is a URL");
  Address address;
  std::string host = text;
  std::optional<std::string> port;
  if (!text.empty() && text[0] == '[') {
    const size_t end = text.find(']');
    if (end == std::string::npos) refuse(text, origin, "the bracket is not closed");
    host = text.substr(1, end - 1);
    if (!isIpv6(host)) refuse(text, origin, "what stands in brackets must be an IPv6 address");
    const std::string rest = text.substr(end + 1);
    if (!rest.empty() && rest[0] != ':') refuse(text, origin, "only :port may follow the bracket");
    if (!rest.empty()) port = rest.substr(1);
  } else if (!isIpv6(text)) {
    const size_t colon = text.find(':');
    if (colon != std::string::npos) {
      if (text.find(':', colon + 1) != std::string::npos) {
        refuse(text, origin, "with several colons it must be an IPv6 address");
      }
      host = text.substr(0, colon);
      port = text.substr(colon + 1);
    }
  }
  address.host = host;
  if (isIpv6(host)) {
    address.kind = HostKind::kIpv6;
  } else if (isIpv4(host)) {
    address.kind = HostKind::kIpv4;
  } else {
    const std::string why = whyNoName(host);
    if (!why.empty()) refuse(text, origin, why);
  }
  if (port) address.port = parsePort(*port, str("the port of ", origin, " (", inQuotes(text), ")"));
  return address;
}

bool isLoopback(const std::string& host) {
  std::string name = lower(host);
  if (!name.empty() && name.front() == '[' && name.back() == ']') {
    name = name.substr(1, name.size() - 2);
  }
  if (!name.empty() && name.back() == '.') name.pop_back();
  for (const char* const own : {"localhost", "localhost.localdomain", "ip6-localhost"}) {
    if (name == own) return true;
  }
  in_addr v4;
  if (::inet_pton(AF_INET, name.c_str(), &v4) == 1) {
    const uint32_t value = ntohl(v4.s_addr);
    return value >> 24 == 127 || value == 0;
  }
  in6_addr v6;
  if (::inet_pton(AF_INET6, name.substr(0, name.find('%')).c_str(), &v6) != 1) return false;
  if (IN6_IS_ADDR_LOOPBACK(&v6) || IN6_IS_ADDR_UNSPECIFIED(&v6)) return true;
  return IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127;
}

std::string hostAndPort(const std::string& host, int port) {
  const bool bare = host.find(':') != std::string::npos && host.front() != '[';
  return bare ? str("[", host, "]:", port) : str(host, ":", port);
}

}  // namespace taco
