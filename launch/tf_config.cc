#include "launch/tf_config.h"

#include <map>
#include <nlohmann/json.hpp>

#include "csrc/base/format.h"
#include "launch/launch_error.h"
#include "launch/text.h"

namespace taco {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(LaunchRule rule, const std::string& text, const std::string& why) {
  throw LaunchError(rule, str("the environment variable TF_CONFIG (", inQuotes(text), ") ", why));
}

// Older TensorFlow says "master" for what is now the chief.
std::string roleOf(const std::string& name) { return name == "master" ? "chief" : name; }

void addTasks(const std::string& role, const std::string& key, const Json& cluster,
              const std::string& text, std::vector<TfTask>& tasks) {
  const auto list = cluster.find(key);
  if (list == cluster.end()) return;
  if (!list->is_array()) {
    refuse(LaunchRule::kE1, text,
           str("has a cluster.", key, " that is no list; it must be a list of \"host:port\""));
  }
  for (const Json& entry : *list) {
    const int index = static_cast<int>(&entry - &(*list)[0]);
    if (!entry.is_string()) {
      refuse(LaunchRule::kE1, text,
             str("has no text at cluster.", key, "[", index, "]; it must be \"host:port\""));
    }
    const std::string origin = str("cluster.", key, "[", index, "] of TF_CONFIG");
    tasks.push_back({role, index, parseAddress(entry.get<std::string>(), origin)});
  }
}

void refuseDuplicates(const std::vector<TfTask>& tasks, const std::string& text) {
  std::map<std::string, const TfTask*> seen;
  for (const TfTask& task : tasks) {
    const std::string address = hostAndPort(task.address.host, task.address.port.value_or(0));
    const auto [other, isNew] = seen.emplace(address, &task);
    if (isNew) continue;
    refuse(LaunchRule::kE3, text,
           str("gives ", other->second->role, " ", other->second->index, " and ", task.role, " ",
               task.index, " the same address ", inQuotes(address),
               "; every task needs one of its own"));
  }
}

int rankOf(const Json& config, const std::vector<TfTask>& tasks, const std::string& text) {
  const auto task = config.find("task");
  if (task == config.end() || !task->is_object() || !task->contains("type") ||
      !(*task)["type"].is_string()) {
    refuse(LaunchRule::kE1, text,
           "has a cluster but no task; task.type and task.index must say which one this is");
  }
  const std::string type = roleOf((*task)["type"].get<std::string>());
  int count = 0;
  for (const TfTask& one : tasks) count += one.role == type ? 1 : 0;
  if (count == 0) {
    refuse(LaunchRule::kE1, text,
           str("has task.type ", inQuotes(type), ", which the cluster does not have; it has ",
               TfCluster{tasks, 0}.summary()));
  }
  // Some platforms write the index as text; without one it is the only task of its kind.
  const auto index = task->find("index");
  std::string written = "0";
  if (index != task->end()) {
    written = index->is_string() ? index->get<std::string>() : index->dump();
  }
  const std::optional<int> number = wholeNumber(written);
  if (!number && (written.size() < 2 || written[0] != '-' || !wholeNumber(written.substr(1)))) {
    refuse(LaunchRule::kE1, text,
           str("has task.index ", inQuotes(written), ", but must have a whole number there"));
  }
  for (size_t rank = 0; number && rank < tasks.size(); ++rank) {
    if (tasks[rank].role == type && tasks[rank].index == *number) return static_cast<int>(rank);
  }
  refuse(LaunchRule::kE2, text,
         str("has task.index ", written, ", but cluster.", type, " has ", count,
             count == 1 ? " entry" : " entries", "; the index must be from 0 to ", count - 1));
}

}  // namespace

std::string TfCluster::summary() const {
  std::string text;
  for (const char* const role : {"chief", "worker", "ps"}) {
    int count = 0;
    for (const TfTask& task : tasks) count += task.role == role ? 1 : 0;
    if (count > 0) text += str(text.empty() ? "" : ", ", count, " ", role);
  }
  return text.empty() ? "no task" : text;
}

std::optional<TfCluster> parseTfConfig(const std::string& text) {
  Json config;
  try {
    config = Json::parse(text);
  } catch (const Json::parse_error& error) {
    refuse(LaunchRule::kE1, text,
           str("is no JSON (at byte ", error.byte, "); correct or unset it"));
  }
  if (!config.is_object()) {
    refuse(LaunchRule::kE1, text, "must be a JSON object with cluster and task");
  }
  const auto cluster = config.find("cluster");
  if (cluster == config.end() || (cluster->is_object() && cluster->empty())) return std::nullopt;
  if (!cluster->is_object()) {
    refuse(LaunchRule::kE1, text,
           "has a cluster that is no object of role -> list of \"host:port\"");
  }
  TfCluster result;
  addTasks("chief", "chief", *cluster, text, result.tasks);
  if (result.tasks.empty()) addTasks("chief", "master", *cluster, text, result.tasks);
  addTasks("worker", "worker", *cluster, text, result.tasks);
  addTasks("ps", "ps", *cluster, text, result.tasks);
  if (result.tasks.empty() || result.tasks.front().role == "ps") {
    refuse(LaunchRule::kE1, text,
           "has a cluster without a worker or chief; rank 0, the master, must be one of these");
  }
  refuseDuplicates(result.tasks, text);
  result.rank = rankOf(config, result.tasks, text);
  return result;
}

}  // namespace taco
