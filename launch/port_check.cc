#include "launch/port_check.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sstream>

#include "csrc/base/format.h"
#include "launch/launch_error.h"
#include "launch/text.h"

namespace taco {
namespace {

// The inodes of sockets on a local port in a table of /proc/net: listening ones, else any.
//   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
//    0: 00000000:7530 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12345
//    1 ...
void collectInodes(const std::string& table, int port, std::set<std::string>& listening,
                   std::set<std::string>& others) {
  constexpr size_t kLocal = 1;
  constexpr size_t kState = 3;
  constexpr size_t kInode = 9;
  std::istringstream lines(table);
  std::string line;
  std::getline(lines, line);  // the heading
  while (std::getline(lines, line)) {
    std::istringstream stream(line);
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    if (words.size() <= kInode) continue;
    const size_t colon = words[kLocal].rfind(':');
    if (colon == std::string::npos) continue;
    const std::string hex = words[kLocal].substr(colon + 1);
    if (hex.empty() || hex.size() > 4 || std::strtol(hex.c_str(), nullptr, 16) != port) continue;
    (words[kState] == "0A" ? listening : others).insert(words[kInode]);
  }
}

// This process itself only if nobody else has one: what it has then is a copy from a fork.
std::string processOf(const std::set<std::string>& inodes, const LaunchSeams& seams) {
  const std::string self = seams.readLink(seams.procRoot + "/self").value_or("");
  std::string own;
  for (const std::string& process : seams.listDirectory(seams.procRoot)) {
    if (process.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string folder = seams.procRoot + "/" + process;
    for (const std::string& descriptor : seams.listDirectory(folder + "/fd")) {
      const auto target = seams.readLink(str(folder, "/fd/", descriptor));
      if (!target || target->compare(0, 8, "socket:[") != 0) continue;
      if (inodes.count(target->substr(8, target->size() - 9)) == 0) continue;
      const auto command = seams.readFile(folder + "/comm");
      const std::string found = command ? str("process ", process, " (", trimmed(*command), ")")
                                        : str("process ", process);
      if (process != self) return found;
      own = found;
    }
  }
  return own;
}

}  // namespace

std::string portOwner(int port, const LaunchSeams& seams) {
  std::set<std::string> listening;
  std::set<std::string> others;
  for (const char* const table : {"/net/tcp", "/net/tcp6"}) {
    if (const auto text = seams.readFile(seams.procRoot + table)) {
      collectInodes(*text, port, listening, others);
    }
  }
  const std::string owner = processOf(listening, seams);
  return owner.empty() && !others.empty() ? processOf(others, seams) : owner;
}

int bindProbeOn(int family, int port) {
  const int descriptor = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return errno;
  sockaddr_storage storage{};
  socklen_t size = sizeof(sockaddr_in);
  if (family == AF_INET6) {
    const int off = 0;
    ::setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    size = sizeof(sockaddr_in6);
  }
  // The port is at the same place in both; the address is left at "any".
  storage.ss_family = static_cast<sa_family_t>(family);
  reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(static_cast<uint16_t>(port));
  const int on = 1;  // connections of the last job that wait for their end do not count
  ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const bool isBound = ::bind(descriptor, reinterpret_cast<sockaddr*>(&storage), size) == 0 &&
                       ::listen(descriptor, 1) == 0;
  const int error = isBound ? 0 : errno;
  ::close(descriptor);
  return error;
}

int bindProbe(int port) {
  // As c10d's store binds: both families, or IPv4 alone where the kernel has no IPv6.
  const int error = bindProbeOn(AF_INET6, port);
  return error == EAFNOSUPPORT ? bindProbeOn(AF_INET, port) : error;
}

void requireFreePort(int port, const std::string& origin, const LaunchSeams& seams,
                     const BindProbe& probe) {
  const int error = probe(port);
  if (error == 0) return;
  std::string why;
  if (error == EADDRINUSE) {
    const std::string owner = portOwner(port, seams);
    why = str("is taken by ",
              owner.empty() ? "another process, which /proc does not show to this user" : owner,
              "; end that process or choose another port");
  } else if (error == EACCES || error == EPERM) {
    why = "is privileged, and this user may not listen on it; choose one from 1024";
  } else {
    why = str("cannot be listened on: ", std::strerror(error), "; choose another");
  }
  throw LaunchError(LaunchRule::kE6, str("the port ", port, " (", origin, ") ", why));
}

}  // namespace taco
