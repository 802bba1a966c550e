#pragma once

#include <pybind11/pybind11.h>

namespace taco {

// resolve(), wait_for_listener(), check_port() and the other functions on addresses and ports.
void bindNetwork(pybind11::module_& module);

}  // namespace taco
