// The real network behind resolve(): getaddrinfo, connect, and the route of a UDP socket.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "launch/resolve.h"

namespace taco {
namespace {

using std::chrono::milliseconds;

struct AddressList {
  addrinfo* first = nullptr;
  ~AddressList() {
    if (first != nullptr) ::freeaddrinfo(first);
  }
};

std::string textOf(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> host;
  const int status =
      ::getnameinfo(address, size, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
  return status == 0 ? std::string(host.data()) : std::string();
}

// One family at a time would ask for IPv6 names where IPv6 is off, and report what that fails
// with; unspecified, the C library answers with what it has.
Lookup lookUpNow(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  AddressList list;
  const int status = ::getaddrinfo(host.c_str(), nullptr, &hints, &list.first);
  Lookup result;
  if (status != 0) {
    result.problem = status == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(status);
    return result;
  }
  for (const addrinfo* one = list.first; one != nullptr; one = one->ai_next) {
    const std::string address = textOf(one->ai_addr, one->ai_addrlen);
    const auto& known = result.addresses;
    if (!address.empty() && std::find(known.begin(), known.end(), address) == known.end()) {
      result.addresses.push_back(address);
    }
  }
  if (result.addresses.empty()) result.problem = "it has no address";
  return result;
}

// A look-up that a thread makes: getaddrinfo takes as long as the name servers let it, and cannot
// be called back. The thread shares the state, so that it may outlive who asked.
struct Pending {
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  bool isDone = false;
  Lookup result;
};

class NameService {
 public:
  Lookup lookUp(const std::string& host, milliseconds patience) {
    if (pending_ == nullptr || host != host_) {
      host_ = host;
      pending_ = std::make_shared<Pending>();
      std::thread([pending = pending_, host] {
        Lookup result = lookUpNow(host);
        const std::lock_guard lock(pending->mutex);
        pending->result = std::move(result);
        pending->isDone = true;
        pending->changed.notify_all();
      }).detach();
    }
    const std::shared_ptr<Pending> pending = pending_;
    std::unique_lock lock(pending->mutex);
    if (!pending->changed.wait_for(lock, patience, [&] { return pending->isDone; })) {
      return {{}, "the name server has not answered yet", true};
    }
    pending_ = nullptr;
    return pending->result;
  }

 private:
  std::string host_;
  std::shared_ptr<Pending> pending_;
};

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

// Of a literal address.
bool parseLiteral(const std::string& address, int port, SocketAddress& result) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  AddressList list;
  const std::string service = std::to_string(port);
  if (::getaddrinfo(address.c_str(), service.c_str(), &hints, &list.first) != 0) return false;
  std::memcpy(&result.storage, list.first->ai_addr, list.first->ai_addrlen);
  result.size = list.first->ai_addrlen;
  return true;
}

struct Socket {
  int descriptor = -1;
  ~Socket() {
    if (descriptor >= 0) ::close(descriptor);
  }
};

std::string connectTo(const std::string& address, int port, milliseconds patience) {
  SocketAddress target;
  if (!parseLiteral(address, port, target)) return "it is no address";
  const int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
  const Socket socket{::socket(target.storage.ss_family, type, 0)};
  if (socket.descriptor < 0) return std::strerror(errno);
  const auto* raw = reinterpret_cast<const sockaddr*>(&target.storage);
  if (::connect(socket.descriptor, raw, target.size) == 0) return "";
  if (errno != EINPROGRESS) return std::strerror(errno);
  pollfd wait{socket.descriptor, POLLOUT, 0};
  const int ready = ::poll(&wait, 1, static_cast<int>(patience.count()));
  if (ready <= 0) return "no answer";
  int error = 0;
  socklen_t size = sizeof(error);
  if (::getsockopt(socket.descriptor, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  return error == 0 ? "" : std::strerror(error);
}

// Connecting a UDP socket sends nothing; it only asks the routing table.
std::string sourceTowards(const std::string& address) {
  constexpr int kAnyPort = 9;
  SocketAddress target;
  if (!parseLiteral(address, kAnyPort, target)) return "";
  const Socket socket{::socket(target.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  if (socket.descriptor < 0) return "";
  const auto* raw = reinterpret_cast<const sockaddr*>(&target.storage);
  if (::connect(socket.descriptor, raw, target.size) != 0) return "";
  SocketAddress own;
  own.size = sizeof(own.storage);
  auto* mine = reinterpret_cast<sockaddr*>(&own.storage);
  if (::getsockname(socket.descriptor, mine, &own.size) != 0) return "";
  return textOf(mine, own.size);
}

}  // namespace

NetworkSeams systemNetwork() {
  const auto names = std::make_shared<NameService>();
  return {
      [names](const std::string& host, milliseconds patience) {
        return names->lookUp(host, patience);
      },
      connectTo,
      sourceTowards,
      [] { return std::chrono::steady_clock::now(); },
      [](milliseconds time) { std::this_thread::sleep_for(time); },
  };
}

}  // namespace taco
