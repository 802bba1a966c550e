#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/deadline.h"
#include "csrc/settings/settings.h"
#include "csrc/transport/transport.h"

namespace taco {

// What a transport is made from, when the ranks have met.
struct TransportParts {
  int rank = 0;
  int size = 1;
  std::string channel;                 // group and lane
  std::string secret;                  // random, the same on all ranks
  std::vector<std::string> addresses;  // what every rank's endpoint published
};

// One lane's end of a transport before the ranks have met: has an address to publish, and becomes
// the transport afterwards.
class Endpoint {
 public:
  // Which one, TACO_TRANSPORT says.
  static std::unique_ptr<Endpoint> open(const Settings& settings,
                                        const std::map<std::string, std::string>& environment,
                                        const Deadline& deadline);
  virtual ~Endpoint() = default;

  virtual std::string address() const = 0;
  virtual std::unique_ptr<Transport> connect(const TransportParts& parts) = 0;  // once
};

}  // namespace taco
