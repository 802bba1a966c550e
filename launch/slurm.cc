#include "launch/slurm.h"

#include <algorithm>
#include <cctype>

#include "csrc/base/format.h"
#include "launch/launch_error.h"
#include "launch/text.h"

namespace taco {
namespace {

// Far above any cluster; what a typing mistake may cost in memory.
constexpr size_t kMostHosts = 65536;
constexpr size_t kLongestNumber = 9;

// A host list is read from left to right; every failure names the whole of it.
class HostList {
 public:
  HostList(const std::string& text, const std::string& origin) : text_(text), origin_(origin) {}

  std::vector<std::string> read() {
    std::vector<std::string> hosts;
    size_t begin = 0;
    bool isInside = false;
    for (size_t i = 0; i <= text_.size(); ++i) {
      if (i == text_.size() || (text_[i] == ',' && !isInside)) {
        expand("", text_.substr(begin, i - begin), hosts);
        begin = i + 1;
      } else if (text_[i] == '[') {
        if (isInside) refuse("there is a bracket in a bracket");
        isInside = true;
      } else if (text_[i] == ']') {
        if (!isInside) refuse("a bracket is closed that was not opened");
        isInside = false;
      }
    }
    if (isInside) refuse("a bracket is not closed");
    return hosts;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw LaunchError(LaunchRule::kE1, str(origin_, " is ", inQuotes(text_),
                                           ", which is no Slurm node list such as "
                                           "node[01-03,7],x: ",
                                           why));
  }

  // `entry` behind `prefix`, its first bracket replaced by each of its numbers.
  void expand(const std::string& prefix, const std::string& entry,
              std::vector<std::string>& hosts) const {
    const size_t open = entry.find('[');
    if (open == std::string::npos) {
      add(prefix + entry, hosts);
      return;
    }
    const size_t close = entry.find(']', open);
    if (close == std::string::npos) refuse("a bracket is not closed");
    const std::string before = prefix + entry.substr(0, open);
    const std::string after = entry.substr(close + 1);
    for (const std::string& range : splitAt(entry.substr(open + 1, close - open - 1), ',')) {
      const size_t dash = range.find('-');
      const std::string first = range.substr(0, dash);
      const std::string last = dash == std::string::npos ? first : range.substr(dash + 1);
      const int from = numberIn(first);
      const int to = numberIn(last);
      if (to < from) refuse(str("the range ", inQuotes(range), " runs backwards"));
      for (int number = from; number <= to; ++number) {
        std::string digits = std::to_string(number);
        if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
        expand(before + digits, after, hosts);
      }
    }
  }

  int numberIn(const std::string& text) const {
    const std::optional<int> number =
        text.size() <= kLongestNumber ? wholeNumber(text) : std::nullopt;
    if (!number) refuse(str(inQuotes(text), " in brackets is no number"));
    return *number;
  }

  void add(const std::string& host, std::vector<std::string>& hosts) const {
    if (host.empty()) refuse("a name is empty");
    if (hosts.size() == kMostHosts) refuse(str("it names more than ", kMostHosts, " hosts"));
    const bool isName = std::all_of(host.begin(), host.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
    });
    if (!isName) refuse(str(inQuotes(host), " is no host name"));
    hosts.push_back(host);
  }

  const std::string& text_;
  const std::string& origin_;
};

}  // namespace

std::vector<std::string> parseSlurmNodes(const std::string& text, const std::string& origin) {
  return HostList(text, origin).read();
}

std::vector<int> parseSlurmTasks(const std::string& text, const std::string& origin) {
  const auto refuse = [&](const std::string& why) {
    throw LaunchError(LaunchRule::kE1, str(origin, " is ", inQuotes(text),
                                           ", which is no Slurm task list such as 2(x3),1: ", why));
  };
  std::vector<int> tasks;
  for (const std::string& part : splitAt(text, ',')) {
    const size_t open = part.find('(');
    const std::optional<int> count = wholeNumber(part.substr(0, open));
    std::optional<int> nodes = 1;
    if (open != std::string::npos) {
      const bool isTimes = part.compare(open, 2, "(x") == 0 && part.back() == ')';
      nodes = isTimes ? wholeNumber(part.substr(open + 2, part.size() - open - 3)) : std::nullopt;
    }
    if (!count || !nodes || *nodes < 1) refuse(str(inQuotes(part), " is none of n, n(xm)"));
    if (tasks.size() + *nodes > kMostHosts) refuse(str("it has more than ", kMostHosts, " nodes"));
    tasks.insert(tasks.end(), *nodes, *count);
  }
  return tasks;
}

}  // namespace taco
