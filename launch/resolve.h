#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace taco {

// What one look-up said: addresses, or why there are none (yet).
struct Lookup {
  std::vector<std::string> addresses;
  std::string problem;
  bool isPending = false;  // no answer yet, neither addresses nor a refusal
};

// The world of resolve() and waitForListener(): the name service, the network and the clock.
struct NetworkSeams {
  // One look-up, which may take up to `patience` and then says that it is still waiting.
  std::function<Lookup(const std::string& host, std::chrono::milliseconds patience)> lookUp;
  // "" when something listens there, else why not.
  std::function<std::string(const std::string& address, int port, std::chrono::milliseconds)>
      connect;
  // The address that this host uses towards another; "" when there is no route.
  std::function<std::string(const std::string& address)> sourceTowards;
  std::function<std::chrono::steady_clock::time_point()> now;
  std::function<void(std::chrono::milliseconds)> sleep;
};

NetworkSeams systemNetwork();

using Progress = std::function<void(const std::string& line)>;

// How often a wait says what it waits for.
constexpr std::chrono::seconds kProgressInterval{5};

// The addresses of `host`: asked again until there are some or `timeout` has passed, with a line to
// `progress` every 5 s. Names of pods appear in DNS seconds after the pod. Throws LaunchError (E8).
// `origin` names what the host came from.
std::vector<std::string> resolve(const std::string& host, std::chrono::milliseconds timeout,
                                 const std::string& origin, const Progress& progress,
                                 const NetworkSeams& seams);

// Waits until something listens at host:port, and returns the one of the host's addresses at which
// it does; resolves, connects, and says so every 5 s, until `timeout`: the master may start later
// than its workers. Throws LaunchError (E8).
std::string waitForListener(const std::string& host, int port, std::chrono::milliseconds timeout,
                            const std::string& origin, const Progress& progress,
                            const NetworkSeams& seams);

// An address of this host at which others reach it: what `name` (its own name) resolves to, unless
// that is loopback (Debian's /etc/hosts says 127.0.1.1); then the address routed to `towards` (the
// master, or any other host of the job).
std::string reachableAddress(const std::string& name, const std::string& towards,
                             const NetworkSeams& seams);

}  // namespace taco
