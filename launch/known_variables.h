#pragma once

#include <string>
#include <vector>

#include "launch/reading.h"

namespace taco {

// Every variable that any row looks at.
const std::vector<std::string>& launchVariables();

// Those of them that are set and had no say, with the reason.
std::vector<LaunchIgnored> ignoredVariables(const Reading& reading);

}  // namespace taco
