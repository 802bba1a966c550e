#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

namespace taco {

// Where a rank listens, as it publishes it: "10.0.0.7:4567 <network id>".
struct TcpAddress {
  std::string host;  // numeric
  uint16_t port = 0;
  std::string networkId;  // see localNetworkId(); "" = unknown

  std::string hostAndPort() const;  // "10.0.0.7:4567", "[fd00::7]:4567"
  std::string encode() const;
  // Throws Error(kSystem) if `text` is not an encoded address.
  static TcpAddress decode(const std::string& text);
};

// The same text in two processes exactly if they share a network stack (one boot of one machine,
// one network namespace), so that 127.0.0.1 of the one is 127.0.0.1 of the other. "" if the system
// does not tell.
std::string localNetworkId();

// The address under which the other ranks can reach this machine:
//   1. `interfaces` (comma-separated names) if not empty: the first that exists and has an address;
//      Error(kInvalidSettings) that lists what there is if none does.
//   2. else the local address of the route to `routeHint` (MASTER_ADDR), if that is not loopback:
//      MASTER_ADDR is the one place that every rank can surely reach;
//   3. else the first interface that is up, not loopback, and not a bridge or a virtual pair of
//      containers: those exist on every node, with the same addresses;
//   4. else loopback.
// Never the first answer for the host's own name: on Debian that is 127.0.1.1.
std::string chooseHost(const std::string& interfaces, const std::string& routeHint);

// The address to connect to from here: loopback if `peer` has this process's network.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};
SocketAddress socketAddress(const std::string& host, uint16_t port);

}  // namespace taco
