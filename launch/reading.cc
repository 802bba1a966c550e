#include "launch/reading.h"

#include "csrc/base/format.h"
#include "launch/launch_env.h"
#include "launch/text.h"

namespace taco {

int parseInteger(const std::string& text, const std::string& origin) {
  const bool isNegative = !text.empty() && text[0] == '-';
  const std::optional<int> value = wholeNumber(isNegative ? text.substr(1) : text);
  if (!value) {
    throw LaunchError(
        LaunchRule::kE1,
        str(origin, " is ", inQuotes(text),
            ", but must be a whole number of at most 2147483647; correct or unset it"));
  }
  return isNegative ? -*value : *value;
}

std::optional<std::string> Reading::text(const std::string& variable) const {
  const auto found = variables_.find(variable);
  if (found == variables_.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::optional<std::string> Reading::argument(const std::string& key) const {
  const auto found = arguments_.find(key);
  if (found == arguments_.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::optional<int> Reading::number(const std::string& variable) const {
  const std::optional<std::string> value = text(variable);
  if (!value) return std::nullopt;
  try {
    return parseInteger(*value, str("the environment variable ", variable));
  } catch (const LaunchError& error) {
    fail(error.rule(), error.what());
  }
}

std::optional<int> Reading::take(const std::string& field, const std::string& variable, int least,
                                 LaunchRule rule) {
  const std::optional<int> value = number(variable);
  if (!value) return std::nullopt;
  if (*value < least) {
    fail(rule, str("the environment variable ", variable, " is '", *value,
                   "', but must be at least ", least));
  }
  record(field, std::to_string(*value), variable);
  return value;
}

std::optional<std::string> Reading::takeText(const std::string& field,
                                             const std::string& variable) {
  std::optional<std::string> value = text(variable);
  if (value) record(field, *value, variable);
  return value;
}

void Reading::requireAll(const std::vector<std::string>& set) const {
  std::vector<std::string> there;
  std::vector<std::string> missing;
  for (const std::string& variable : set) {
    if (const auto value = text(variable)) {
      there.push_back(str(variable, "=", inQuotes(*value)));
    } else {
      missing.push_back(str(variable, variables_.count(variable) > 0 ? " (set, but empty)" : ""));
    }
  }
  if (missing.empty()) return;
  fail(LaunchRule::kE1, str("the environment variable", missing.size() > 1 ? "s " : " ",
                            listed(missing), missing.size() > 1 ? " are" : " is", " missing",
                            there.empty() ? ""
                                          : str(", though ", listed(there),
                                                there.size() > 1 ? " are" : " is", " set"),
                            "; set all of ", listed(set), " or none of them"));
}

void Reading::record(const std::string& field, const std::string& value,
                     const std::string& origin) {
  values.push_back({field, value, origin});
  used_.insert(origin);
}

std::string Reading::originOf(const std::string& field) const {
  for (const LaunchValue& value : values) {
    if (value.field == field) return value.origin;
  }
  return field;
}

void Reading::fail(LaunchRule rule, const std::string& message) const {
  const std::string why =
      row == nullptr
          ? ""
          : str(" [launch row ", row->name,
                isForced ? ", chosen by TACO_LAUNCHER" : str(": ", row->detectedWhen), "]");
  throw LaunchError(rule, str(message, why));
}

}  // namespace taco
