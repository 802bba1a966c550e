#include "torch_ext/mpi.h"

#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include "csrc/mpi/mpi_rendezvous.h"
#include "csrc/settings/settings.h"
#include "torch_ext/errors.h"

namespace py = pybind11;

namespace taco {

void bindMpi(py::module_& module) {
  module.def(
      "mpi_broadcast_master",
      [](uint16_t port, Millis timeout) {
        const MpiMaster master = translated("taco://", [&] {
          return meetThroughMpi(processEnvironment(), port, Deadline::after(timeout));
        });
        return std::pair<std::string, uint16_t>(master.host, master.port);
      },
      py::arg("port"), py::arg("timeout"), py::call_guard<py::gil_scoped_release>(),
      "Where rank 0 listens: it gives its port, all others 0.");
}

}  // namespace taco
