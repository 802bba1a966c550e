#include "launch/resolve.h"

#include <algorithm>
#include <utility>

#include "csrc/base/format.h"
#include "launch/address.h"
#include "launch/launch_error.h"
#include "launch/text.h"

namespace taco {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How long one attempt may take and how long to rest after it: short enough that an answer is seen
// soon, long enough not to burden a name server with a thousand workers asking.
constexpr milliseconds kAttempt{500};
constexpr milliseconds kRest{250};

// A wait in attempts, until a deadline, that says every 5 s what it waits for.
class PatientWait {
 public:
  PatientWait(milliseconds timeout, const Progress& progress, const NetworkSeams& seams)
      : progress_(progress),
        seams_(seams),
        begin_(seams.now()),
        timeout_(std::max(timeout, milliseconds(0))) {}

  // How long the next attempt may take.
  milliseconds patience() const { return std::clamp(left(), milliseconds(1), kAttempt); }
  bool isOver() const { return left().count() <= 0; }

  // Between two attempts.
  void rest(const std::string& what) {
    const milliseconds waited = elapsed();
    if (waited >= said_ + kProgressInterval) {
      said_ = waited;
      if (progress_) progress_(str(what, " (", waited.count() / 1000, " s of ", seconds(), ")"));
    }
    seams_.sleep(std::clamp(left(), milliseconds(1), kRest));
  }

  std::string seconds() const {
    const auto tenths = (timeout_.count() + 50) / 100;
    return tenths % 10 == 0 ? str(tenths / 10, " s") : str(tenths / 10, ".", tenths % 10, " s");
  }

 private:
  milliseconds elapsed() const {
    return std::chrono::duration_cast<milliseconds>(seams_.now() - begin_);
  }
  milliseconds left() const { return timeout_ - elapsed(); }

  const Progress& progress_;
  const NetworkSeams& seams_;
  const steady_clock::time_point begin_;
  const milliseconds timeout_;
  milliseconds said_{0};
};

std::vector<std::string> resolveWithin(const std::string& host, const std::string& origin,
                                       PatientWait& wait, const NetworkSeams& seams) {
  const Address address = parseAddress(host, origin);
  if (address.kind != HostKind::kName) return {address.host};
  std::string problem;  // what the last answer said
  while (true) {
    const Lookup found = seams.lookUp(address.host, wait.patience());
    if (!found.addresses.empty()) return found.addresses;
    if (!found.isPending || problem.empty()) problem = found.problem;
    if (wait.isOver()) {
      throw LaunchError(
          LaunchRule::kE8,
          str(origin, " is ", inQuotes(host), ", and that name did not resolve within ",
              wait.seconds(), ": ", problem,
              "; check the name, and that the host or its service is there"));
    }
    wait.rest(str("waiting for the name ", host, " (", origin, ") to resolve: ", problem));
  }
}

}  // namespace

std::vector<std::string> resolve(const std::string& host, milliseconds timeout,
                                 const std::string& origin, const Progress& progress,
                                 const NetworkSeams& seams) {
  PatientWait wait(timeout, progress, seams);
  return resolveWithin(host, origin, wait, seams);
}

std::string waitForListener(const std::string& host, int port, milliseconds timeout,
                            const std::string& origin, const Progress& progress,
                            const NetworkSeams& seams) {
  PatientWait wait(timeout, progress, seams);
  const Address named = parseAddress(host, origin);
  std::vector<std::string> addresses;
  while (true) {
    std::string problem;
    if (addresses.empty()) {
      addresses = resolveWithin(host, origin, wait, seams);
    } else if (named.kind == HostKind::kName) {
      // Again each time: a pod that restarts comes back with another address. But a name server
      // that is slow now does not make what it said before worthless.
      Lookup found = seams.lookUp(named.host, wait.patience());
      if (!found.addresses.empty()) addresses = std::move(found.addresses);
    }
    for (const std::string& address : addresses) {
      problem = seams.connect(address, port, wait.patience());
      if (problem.empty()) return address;
    }
    const std::string where = hostAndPort(named.host, port);
    if (wait.isOver()) {
      throw LaunchError(LaunchRule::kE8,
                        str("nothing listened at ", where, " (", origin, ") within ",
                            wait.seconds(), ": ", problem,
                            "; check that rank 0 has started there, that the port is "
                            "the same on all hosts, and that no firewall is between"));
    }
    wait.rest(str("waiting for the master at ", where, " (", origin, "): ", problem));
  }
}

std::string reachableAddress(const std::string& name, const std::string& towards,
                             const NetworkSeams& seams) {
  // This host's own name: one attempt, since no service has to come up for it.
  const Lookup own = seams.lookUp(name, kAttempt);
  for (const std::string& address : own.addresses) {
    if (!isLoopback(address)) return address;
  }
  // An address outside every private network, so that the default route answers. Nothing is sent.
  std::vector<std::string> targets = {"192.0.2.1", "2001:db8::1"};
  if (!towards.empty() && !isLoopback(towards)) {
    const Address address = parseAddress(towards, "the master");
    const Lookup other = address.kind == HostKind::kName ? seams.lookUp(address.host, kAttempt)
                                                         : Lookup{{address.host}, "", false};
    targets.insert(targets.begin(), other.addresses.begin(), other.addresses.end());
  }
  for (const std::string& target : targets) {
    std::string source = seams.sourceTowards(target);
    if (!source.empty() && !isLoopback(source)) return source;
  }
  return own.addresses.empty() ? "127.0.0.1" : own.addresses.front();
}

}  // namespace taco
