#pragma once

#include <sstream>
#include <string>

namespace taco {

// str("rank ", 3, " died"): the parts one after the other, as a stream would print them.
template <typename... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace taco
