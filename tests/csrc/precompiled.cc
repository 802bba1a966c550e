// What carries the precompiled header of the tests (cmake/TacoTest.cmake).
#include "tests/csrc/ranks.h"
