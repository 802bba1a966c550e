# taco_test(<name> [LABELS unit|ranks ...] [LINK <library>...] [TIMEOUT <seconds>] SOURCES <file_test.cc>...)
#
# One executable of Catch2 tests; every TEST_CASE is a CTest entry of its own, so that a hang or a crash
# costs that case only. Test files include "tests/csrc/catch.h", which fits Catch2 v2 (Debian 12, Ubuntu
# 22.04) and v3 (Ubuntu 24.04).
find_package(Catch2 REQUIRED)
include(Catch)

# taco_catch: Catch2 and a main().
if(Catch2_VERSION VERSION_LESS 3)
  # The main() of v2 takes half a minute to compile: once, for all executables.
  add_library(taco_catch STATIC "${PROJECT_SOURCE_DIR}/tests/csrc/catch_main.cc")
  target_link_libraries(taco_catch PUBLIC Catch2::Catch2)
else()
  add_library(taco_catch INTERFACE)
  target_link_libraries(taco_catch INTERFACE Catch2::Catch2WithMain)
endif()

# TACO_PCH: Catch2 and what stands beside it in every test, compiled once. Off by default, since ccache finds
# nothing behind a precompiled header without settings of its own.
if(TACO_PCH)
  # An executable, as the tests are: the compiler wants the same flags.
  add_executable(taco_test_pch "${PROJECT_SOURCE_DIR}/tests/csrc/precompiled.cc")
  target_include_directories(taco_test_pch PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(taco_test_pch PRIVATE taco_warnings taco_catch taco_data Threads::Threads)
  target_precompile_headers(taco_test_pch PRIVATE "${PROJECT_SOURCE_DIR}/tests/csrc/ranks.h")
endif()

function(taco_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "LABELS;LINK;SOURCES")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES)
    message(FATAL_ERROR "taco_test(${name}): no SOURCES, or an unknown argument ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  set(target ${name}_test)
  add_executable(${target} ${arg_SOURCES})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${target} PRIVATE taco_warnings taco_catch ${arg_LINK} Threads::Threads)
  if(TACO_PCH)
    target_precompile_headers(${target} REUSE_FROM taco_test_pch)
    # The compiler wants the same macros.
    target_compile_definitions(${target} PRIVATE $<TARGET_PROPERTY:taco_data,INTERFACE_COMPILE_DEFINITIONS>)
  endif()
  catch_discover_tests(
    ${target}
    TEST_PREFIX "${name}: "
    # A name that CTest takes apart (with a semicolon) matches nothing, and Catch2 v2 calls that success.
    PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} FAIL_REGULAR_EXPRESSION
               "No test cases matched|No tests ran")
endfunction()
