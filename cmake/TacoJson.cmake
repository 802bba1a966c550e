# taco_json: nlohmann's JSON for TF_CONFIG, headers only (Debian and Ubuntu: nlohmann-json3-dev).
find_path(TACO_JSON_INCLUDE nlohmann/json.hpp)
mark_as_advanced(TACO_JSON_INCLUDE)
if(NOT TACO_JSON_INCLUDE)
  message(FATAL_ERROR "nlohmann/json.hpp was not found: apt-get install nlohmann-json3-dev")
endif()
add_library(taco_json INTERFACE)
target_include_directories(taco_json SYSTEM INTERFACE "${TACO_JSON_INCLUDE}")
