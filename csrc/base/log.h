#pragma once

#include <string>

namespace taco {

enum class LogLevel { kError = 0, kWarn = 1, kInfo = 2, kDebug = 3 };

// One line on stderr, "[taco rank/size] text", if `level` is at or above the process's level.
// The level is set once from TACO_LOG (csrc/settings) and is kWarn before that.
void log(LogLevel level, const std::string& text);
void setLogLevel(LogLevel level);
bool logs(LogLevel level);

}  // namespace taco
