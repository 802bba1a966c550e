#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launch/launch.h"

namespace taco {

struct LaunchRow;

// One reading of the environment: hands out variables, turns them into numbers, and remembers which
// gave what. An empty variable counts as unset.
class Reading {
 public:
  Reading(const Variables& variables, const Arguments& arguments, const LaunchSeams& seams)
      : variables_(variables), arguments_(arguments), seams_(seams) {}

  bool has(const std::string& variable) const { return text(variable).has_value(); }
  std::optional<std::string> text(const std::string& variable) const;
  std::optional<std::string> argument(const std::string& key) const;

  // The number of a variable, nothing when it is unset; E1 what is no integer. take() also records
  // it as the value of `field`, and insists on `least` (E2, or the rule given).
  std::optional<int> number(const std::string& variable) const;
  std::optional<int> take(const std::string& field, const std::string& variable, int least,
                          LaunchRule rule = LaunchRule::kE2);
  std::optional<std::string> takeText(const std::string& field, const std::string& variable);

  // E1 when one of `set` is missing, naming those that are there and those that are not.
  void requireAll(const std::vector<std::string>& set) const;

  void record(const std::string& field, const std::string& value, const std::string& origin);
  void use(const std::string& variable) { used_.insert(variable); }
  void note(const std::string& text) { notes.push_back(text); }
  void warn(const std::string& text) { warnings.push_back(text); }

  // "RANK" or whatever gave the field its value.
  std::string originOf(const std::string& field) const;

  // Throws; the row and why it was chosen end the message.
  [[noreturn]] void fail(LaunchRule rule, const std::string& message) const;

  bool isUsed(const std::string& variable) const { return used_.count(variable) > 0; }
  const Variables& variables() const { return variables_; }
  const Arguments& arguments() const { return arguments_; }
  const LaunchSeams& seams() const { return seams_; }

  const LaunchRow* row = nullptr;  // the one that matched
  bool isForced = false;           // by TACO_LAUNCHER or the argument
  std::vector<LaunchValue> values;
  std::vector<std::string> notes;
  std::vector<std::string> warnings;

 private:
  const Variables& variables_;
  const Arguments& arguments_;
  const LaunchSeams& seams_;
  std::set<std::string> used_;
};

// The integer of `text`, with an optional '-'; E1 what is none or does not fit an int. `origin`:
// "the environment variable RANK".
int parseInteger(const std::string& text, const std::string& origin);

}  // namespace taco
