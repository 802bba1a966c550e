# The version number is written once, in pyproject.toml.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/pyproject.toml")
file(STRINGS "${CMAKE_CURRENT_SOURCE_DIR}/pyproject.toml" versionLine REGEX "^version = " LIMIT_COUNT 1)
if(NOT versionLine MATCHES "^version = \"([0-9]+\\.[0-9]+\\.[0-9]+)\"")
  message(FATAL_ERROR "pyproject.toml has no line 'version = \"X.Y.Z\"'; it says: ${versionLine}")
endif()
set(TACO_VERSION "${CMAKE_MATCH_1}")
