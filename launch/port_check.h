#pragma once

#include <functional>
#include <string>

#include "launch/seams.h"

namespace taco {

// Who listens on a TCP port, as far as /proc shows: "process 4242 (python)", or "" when it does
// not.
std::string portOwner(int port, const LaunchSeams& seams);

// 0 when this process could listen on the port, else errno.
using BindProbe = std::function<int(int port)>;
int bindProbe(int port);
int bindProbeOn(int family, int port);  // AF_INET6 (which takes IPv4 along) or AF_INET

// Throws LaunchError (E6) when `port` cannot be listened on: occupied (by whom, where readable), or
// privileged. `origin` names what the port came from.
void requireFreePort(int port, const std::string& origin, const LaunchSeams& seams,
                     const BindProbe& probe = bindProbe);

}  // namespace taco
