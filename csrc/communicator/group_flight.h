#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/ticket.h"
#include "csrc/communicator/flight_groups.h"
#include "csrc/communicator/flight_record.h"
#include "csrc/data/buffer.h"
#include "csrc/topology/topology.h"

namespace taco {

// What one group tells the flight record of the process, but for its collectives (flight_task.h).
class GroupFlight {
 public:
  struct Facts {
    std::string name;
    int rank = 0;
    int size = 1;
    std::vector<int> globalRanks;
  };
  // `folder`: where a failure is written down; empty: nowhere.
  GroupFlight(const Facts& facts, const Topology& topology, std::optional<std::string> folder);

  FlightGroup& group() { return *group_; }

  // Posts a send or receive by `post` and follows it to its end. The first one that fails by itself
  // has the record written down; its group lives on.
  TicketPtr message(FlightKind kind, const ConstBuffer& buffer, int peer, int64_t tag,
                    const std::function<TicketPtr()>& post);

  // Sends and receives are about to fail with their group: none of them is news.
  void expectFailure() { group_->toldOfMessage = true; }

  // The group has failed: writes the record down. Never throws.
  void failed(const Error& why) noexcept;

  // Nothing of the group runs any more; what never ran fails in the record as its ticket did.
  void ended(const Error& why);

 private:
  const std::shared_ptr<FlightGroup> group_;
  const std::optional<std::string> folder_;
};

}  // namespace taco
