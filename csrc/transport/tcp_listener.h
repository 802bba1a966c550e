#pragma once

#include <string>

#include "csrc/transport/file_descriptor.h"
#include "csrc/transport/tcp_address.h"

namespace taco {

// A listening socket on a port that the kernel chooses, made before the ranks meet: each publishes
// the address of its listener, and hands the listener to its TcpTransport.
class TcpListener {
 public:
  // `interfaces`: TACO_SOCKET_IFNAME, may be empty. `routeHint`: MASTER_ADDR, may be empty.
  TcpListener(const std::string& interfaces, const std::string& routeHint);

  const TcpAddress& where() const { return where_; }
  std::string address() const { return where_.encode(); }  // what to publish
  int fd() const { return socket_.get(); }

 private:
  FileDescriptor socket_;
  TcpAddress where_;
};

}  // namespace taco
