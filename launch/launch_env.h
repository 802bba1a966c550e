#pragma once

#include <string>
#include <vector>

#include "launch/launch.h"

namespace taco {

class Reading;

// One row of the decision table. Rows are tried in order; the first that matches is extracted, and
// what belongs to later ones is ignored, with the reason.
struct LaunchRow {
  const char* name;
  const char* detectedWhen;
  LaunchLevel level;
  const char* meaning;
  // The variables that say "this row": complete, or not there.
  bool (*matches)(const Reading&);
  // Fills `launch` from the variables of the row.
  void (*extract)(Reading&, Launch& launch);
};

const std::vector<LaunchRow>& launchTable();

// The table as Markdown rows, for docs/launching.md and `taco run --print-env`.
std::string launchTableMarkdown();

}  // namespace taco
