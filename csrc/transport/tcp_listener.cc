#include "csrc/transport/tcp_listener.h"

#include <cerrno>

#include "csrc/base/error.h"

namespace taco {
namespace {

// Returns none with errno set if it cannot be had.
FileDescriptor listenOn(const std::string& host) {
  const SocketAddress address = socketAddress(host, 0);
  const int family = address.family();
  FileDescriptor fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fd;
  if (family == AF_INET6) {
    const int off = 0;
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  if (::bind(fd.get(), address.get(), address.length) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    const int why = errno;
    fd.close();
    errno = why;
  }
  return fd;
}

uint16_t portOf(int fd) {
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    throw systemError("the port of a listening socket cannot be read", errno);
  }
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                           : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

}  // namespace

TcpListener::TcpListener(const std::string& interfaces, const std::string& routeHint) {
  where_.host = chooseHost(interfaces, routeHint);
  if (interfaces.empty()) {
    // On every address of this machine: the peers on other machines come by the published one,
    // those in this network namespace by 127.0.0.1.
    socket_ = listenOn("::");
    if (!socket_) socket_ = listenOn("0.0.0.0");
    where_.networkId = localNetworkId();
  } else {
    // On no other network than the one that was named; who is near comes by its address as well.
    socket_ = listenOn(where_.host);
  }
  if (!socket_) {
    throw systemError("this rank cannot listen for TCP connections of its peers", errno);
  }
  where_.port = portOf(socket_.get());
}

}  // namespace taco
