#pragma once

#include <string>
#include <vector>

#include "launch/launch.h"

namespace taco {

// "host:gpus,host:gpus,...", as the TI platform writes NODE_LIST and NODE_IP_SLOT_LIST, and as
// mpirun's -H takes it. A host without a number has one slot. Empty entries (a trailing comma) are
// passed over with a line in `warnings`. The same host twice is a LaunchError (E4): mpirun would
// add the slots up, and two nodes with one name cannot be. E1 what is no number, E8 what is no
// host.
std::vector<HostSlots> parseNodeList(const std::string& text, const std::string& origin,
                                     std::vector<std::string>& warnings);

// E4 where `processes` are more than the slots, which it lists. `asked` and `origin` name what the
// two come from; `asked` may be empty.
void requireSlots(const std::vector<HostSlots>& hosts, const std::string& origin, int processes,
                  const std::string& asked);

int sumOfSlots(const std::vector<HostSlots>& hosts);

// "a:4, b:8": for messages, at most a dozen hosts of them.
std::string hostsText(const std::vector<HostSlots>& hosts);

}  // namespace taco
