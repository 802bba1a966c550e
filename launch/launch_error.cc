#include "launch/launch_error.h"

namespace taco {

const char* name(LaunchRule rule) {
  switch (rule) {
    case LaunchRule::kE1:
      return "E1";
    case LaunchRule::kE2:
      return "E2";
    case LaunchRule::kE3:
      return "E3";
    case LaunchRule::kE4:
      return "E4";
    case LaunchRule::kE5:
      return "E5";
    case LaunchRule::kE6:
      return "E6";
    case LaunchRule::kE8:
      return "E8";
    case LaunchRule::kLevel:
      return "level";
  }
  return "";
}

}  // namespace taco
