// main() for Catch2 version 2; version 3 brings its own (cmake/TacoTest.cmake chooses).
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
