#include "launch/hostfile.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <sstream>

#include "csrc/base/format.h"
#include "launch/node_list.h"
#include "launch/text.h"

namespace taco {
namespace {

// The words of a line, with "slots = 4" drawn together to "slots=4".
std::vector<std::string> wordsOf(const std::string& line) {
  std::string close;
  for (const char c : line) {
    if (c == '=') {
      while (!close.empty() && (close.back() == ' ' || close.back() == '\t')) close.pop_back();
    }
    const bool isAfterEquals = !close.empty() && close.back() == '=';
    if (isAfterEquals && (c == ' ' || c == '\t')) continue;
    close += c;
  }
  std::istringstream stream(close);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// A number behind the name: host:8, [fd00::1]:8.
bool hasOwnNumber(const std::string& host) {
  const size_t bracket = host.rfind(']');
  const size_t colon = host.rfind(':');
  if (colon == std::string::npos) return false;
  return bracket != std::string::npos ? colon > bracket
                                      : std::count(host.begin(), host.end(), ':') == 1;
}

}  // namespace

std::vector<HostSlots> parseHostfile(const std::string& text, const std::string& origin,
                                     std::vector<std::string>& warnings) {
  std::vector<HostSlots> hosts;
  std::map<std::string, size_t> index;
  int64_t total = 0;
  int number = 0;
  for (const std::string& raw : splitAt(text, '\n')) {
    ++number;
    const std::vector<std::string> words = wordsOf(trimmed(raw.substr(0, raw.find('#'))));
    if (words.empty()) continue;
    const std::string where = str("line ", number, " of ", origin);
    // OpenMPI's "user@host" names the ssh user.
    const std::string name = words[0].substr(words[0].find('@') + 1);
    if (name.find(',') != std::string::npos) {
      throw LaunchError(LaunchRule::kE1, str(where, " is ", inQuotes(trimmed(raw)),
                                             ", but a line of a hostfile has one host; put each on "
                                             "a line of its own"));
    }
    HostSlots host = parseNodeList(name, where, warnings).front();
    bool hasSlots = hasOwnNumber(name);
    for (size_t i = 1; i < words.size(); ++i) {
      const size_t equals = words[i].find('=');
      const std::string key = words[i].substr(0, equals);
      if (key == "max_slots" || key == "max-slots") continue;
      if (key != "slots" && key != "cpus" && key != "count") {
        warnings.push_back(
            str(where, ": ", inQuotes(words[i]), " is not understood and passed over"));
        continue;
      }
      const std::string value = equals == std::string::npos ? "" : words[i].substr(equals + 1);
      const std::optional<int> slots = wholeNumber(value);
      if (!slots) {
        throw LaunchError(LaunchRule::kE1, str(where, " has ", key, "=", inQuotes(value),
                                               ", but must have a whole number there"));
      }
      if (hasSlots && *slots != host.slots) {
        throw LaunchError(LaunchRule::kE4,
                          str(where, " (", inQuotes(trimmed(raw)), ") gives two numbers of slots, ",
                              host.slots, " and ", *slots, "; leave one"));
      }
      hasSlots = true;
      host.slots = *slots;
    }
    total += host.slots;
    if (total > std::numeric_limits<int>::max()) {
      throw LaunchError(LaunchRule::kE4, str(where, ": up to here the file has ", total,
                                             " slots, more than a job can have processes; correct "
                                             "the numbers"));
    }
    const auto [found, isNew] = index.emplace(host.host, hosts.size());
    if (isNew) {
      hosts.push_back(host);
    } else {
      hosts[found->second].slots += host.slots;
    }
  }
  if (hosts.empty()) {
    throw LaunchError(LaunchRule::kE1,
                      str(origin, " names no host; write one a line, such as node-0 slots=8"));
  }
  return hosts;
}

}  // namespace taco
