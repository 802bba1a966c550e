// The rendezvous through MPI, for Python.
#pragma once

#include <pybind11/pybind11.h>

namespace taco {

void bindMpi(pybind11::module_& module);

}  // namespace taco
