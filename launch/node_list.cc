#include "launch/node_list.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>

#include "csrc/base/format.h"
#include "launch/address.h"
#include "launch/text.h"

namespace taco {
namespace {

constexpr size_t kMostHostsShown = 12;

// The end of the host and the text of its number: the last colon outside brackets, unless the entry
// is a bare IPv6 address.
HostSlots parseEntry(const std::string& entry, const std::string& text, const std::string& origin) {
  const std::string where =
      str("the entry ", inQuotes(entry), " of ", origin, " (", inQuotes(text), ")");
  std::string host = entry;
  std::string slots = "1";
  const size_t colon = entry.rfind(':');
  const size_t bracket = entry.rfind(']');
  const size_t colons = std::count(entry.begin(), entry.end(), ':');
  const bool hasNumber =
      colon != std::string::npos && (bracket != std::string::npos ? colon > bracket : colons == 1);
  if (hasNumber) {
    host = entry.substr(0, colon);
    slots = entry.substr(colon + 1);
  }
  const Address address = parseAddress(host, str("the host in ", where));
  if (address.port) {
    throw LaunchError(LaunchRule::kE8, str(where,
                                           " has more than a host and a number; write "
                                           "host:gpus,host:gpus"));
  }
  const std::optional<int> count = wholeNumber(slots);
  if (!count) {
    throw LaunchError(LaunchRule::kE1, str(where, " has ", inQuotes(slots),
                                           " where the number of GPUs or slots belongs; write "
                                           "host:gpus,host:gpus"));
  }
  return HostSlots{address.host, *count};
}

}  // namespace

std::vector<HostSlots> parseNodeList(const std::string& text, const std::string& origin,
                                     std::vector<std::string>& warnings) {
  std::vector<HostSlots> hosts;
  std::set<std::string> seen;
  int64_t total = 0;
  bool hasEmpty = false;
  for (const std::string& part : splitAt(text, ',')) {
    const std::string entry = trimmed(part);
    if (entry.empty()) {
      hasEmpty = true;
      continue;
    }
    hosts.push_back(parseEntry(entry, text, origin));
    total += hosts.back().slots;
    if (total > std::numeric_limits<int>::max()) {
      throw LaunchError(LaunchRule::kE4, str(origin, " (", inQuotes(text),
                                             ") has more GPUs than a job can have processes; "
                                             "correct the numbers after the colons"));
    }
    if (!seen.insert(hosts.back().host).second) {
      throw LaunchError(LaunchRule::kE4, str(origin, " (", inQuotes(text), ") names the host ",
                                             inQuotes(hosts.back().host),
                                             " twice; name every node once, with all its GPUs"));
    }
  }
  if (hosts.empty()) {
    throw LaunchError(LaunchRule::kE1,
                      str(origin, " is ", inQuotes(text),
                          ", but must name at least one host: host:gpus,host:gpus"));
  }
  if (hasEmpty) {
    warnings.push_back(str(origin, " (", inQuotes(text),
                           ") has a comma too many; the empty entry is passed over"));
  }
  return hosts;
}

void requireSlots(const std::vector<HostSlots>& hosts, const std::string& origin, int processes,
                  const std::string& asked) {
  const int slots = sumOfSlots(hosts);
  if (processes <= slots) return;
  throw LaunchError(LaunchRule::kE4,
                    str(processes, processes == 1 ? " process is" : " processes are", " asked for",
                        asked.empty() ? "" : str(" (", asked, ")"), ", but the hosts have ", slots,
                        slots == 1 ? " slot" : " slots", " (", hostsText(hosts), "; ", origin,
                        "); ask for fewer processes or give the hosts more slots"));
}

int sumOfSlots(const std::vector<HostSlots>& hosts) {
  int sum = 0;
  for (const HostSlots& host : hosts) sum += host.slots;
  return sum;
}

std::string hostsText(const std::vector<HostSlots>& hosts) {
  std::string text;
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (i == kMostHostsShown) return text + str(" and ", hosts.size() - i, " more");
    text += str(i == 0 ? "" : ", ", hosts[i].host, ":", hosts[i].slots);
  }
  return text;
}

}  // namespace taco
