#include <algorithm>

#include "csrc/base/format.h"
#include "launch/address.h"
#include "launch/launch.h"
#include "launch/launch_env.h"

namespace taco {
namespace {

constexpr size_t kWidestColumn = 48;

// Lines of columns, each as wide as its widest cell (within limits), the last one ragged.
class Columns {
 public:
  void add(std::vector<std::string> cells) { lines_.push_back(std::move(cells)); }
  bool empty() const { return lines_.empty(); }

  std::string text() const {
    std::vector<size_t> widths;
    for (const auto& cells : lines_) {
      widths.resize(std::max(widths.size(), cells.size()), 0);
      for (size_t i = 0; i < cells.size(); ++i) {
        widths[i] = std::max(widths[i], std::min(cells[i].size(), kWidestColumn));
      }
    }
    std::string text;
    for (const auto& cells : lines_) {
      text += " ";
      for (size_t i = 0; i < cells.size(); ++i) {
        text += " " + cells[i];
        const bool isLast = i + 1 == cells.size();
        if (!isLast && cells[i].size() < widths[i]) text.append(widths[i] - cells[i].size(), ' ');
        if (!isLast) text += " ";
      }
      text += "\n";
    }
    return text;
  }

 private:
  std::vector<std::vector<std::string>> lines_;
};

std::string number(const std::optional<int>& value) { return value ? std::to_string(*value) : "?"; }

std::string summary(const Launch& launch) {
  std::string text;
  switch (launch.level) {
    case LaunchLevel::kProcess:
      text = str("process ", number(launch.rank), " of ", number(launch.worldSize));
      break;
    case LaunchLevel::kNode:
      text = str("node ", number(launch.nodeRank), " of ",
                 launch.row == "ti-ray" ? "a Ray cluster" : number(launch.nodes));
      break;
    case LaunchLevel::kRole:
      text = str(launch.role, " ", number(launch.roleIndex), ", rank ", number(launch.rank), " of ",
                 number(launch.worldSize));
      break;
    case LaunchLevel::kLauncher:
      text = str("mpirun is to start ", number(launch.worldSize), " processes on ",
                 number(launch.nodes), " hosts");
      break;
  }
  if (launch.level == LaunchLevel::kProcess && launch.localRank) {
    text += str(", local ", number(launch.localRank));
    if (launch.localWorldSize) text += str(" of ", *launch.localWorldSize);
  }
  if (launch.level == LaunchLevel::kProcess && launch.nodeRank) {
    text += str(", node ", *launch.nodeRank);
    if (launch.nodes) text += str(" of ", *launch.nodes);
  }
  if (launch.level == LaunchLevel::kNode && launch.row != "ti-ray") {
    text += str(", ",
                launch.processesPerNode ? std::to_string(*launch.processesPerNode)
                                        : launch.processesPerNodeWord,
                launch.processesPerNode == 1 ? " process a node" : " processes a node");
  }
  if (launch.masterAddress) {
    text += ", master ";
    text += launch.masterPort ? hostAndPort(*launch.masterAddress, *launch.masterPort)
                              : *launch.masterAddress;
  }
  return text;
}

std::string lines(const char* title, const std::vector<std::string>& texts) {
  std::string result;
  for (const std::string& text : texts) result += str(title, ": ", text, "\n");
  return result;
}

}  // namespace

std::string describe(const Launch& launch) {
  std::string text = str("launch: ", summary(launch), "\n");
  size_t number = 0;
  for (size_t i = 0; i < launchTable().size(); ++i) {
    if (launch.row == launchTable()[i].name) number = i;
  }
  if (const LaunchRow& row = launchTable()[number]; launch.row == row.name) {
    text += str("row ", number + 1, ", ", row.name, " (level ", name(row.level),
                "): ", row.detectedWhen, "\n");
  }
  Columns values;
  for (const LaunchValue& value : launch.values) {
    values.add({value.field, value.value, "from " + value.origin});
  }
  if (!values.empty()) text += "values:\n" + values.text();
  Columns ignored;
  for (const LaunchIgnored& one : launch.ignored) ignored.add({one.variable, one.value, one.why});
  if (!ignored.empty()) text += "ignored:\n" + ignored.text();
  return text + lines("note", launch.notes) + lines("warning", launch.warnings);
}

}  // namespace taco
