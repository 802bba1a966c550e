// torch_taco._C
#include <c10/core/ScalarType.h>
#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/utils/pybind.h>

#include <string>

#include "csrc/base/flag_latency.h"
#include "csrc/base/fault_point.h"
#include "csrc/base/format.h"
#include "csrc/communicator/communicator.h"
#include "csrc/communicator/flight_dump.h"
#include "csrc/settings/settings.h"
#include "torch_ext/errors.h"
#include "torch_ext/mpi.h"
#include "torch_ext/process_group_taco.h"
#include "torch_ext/reduce_spec.h"
#include "torch_ext/tensors.h"
#include "torch_ext/topk_bindings.h"

namespace py = pybind11;

namespace taco {
namespace {

// Classes of torch keep their layout within one minor version only: with any other, the first call
// would read garbage. The version is asked of Python, whose torch is the one in this process.
void requireTorchVersion() {
  const auto running = py::module_::import("torch").attr("__version__").cast<std::string>();
  const std::string built = TACO_TORCH_VERSION;  // "2.11"
  const bool same = running.compare(0, built.size(), built) == 0 &&
                    (running.size() == built.size() || running[built.size()] == '.');
  if (same) return;
  throw py::import_error(
      str("this installation of torch_taco was built for torch ", built, ", but torch ", running,
          " is running; install torch-taco again for it: pip install --no-build-isolation "
          "--force-reinstall --no-deps <the torch-taco source folder>"));
}

DType dtypeOfPython(const py::object& object) {
  if (!THPDtype_Check(object.ptr())) {
    throw py::type_error(str("dtype must be a torch.dtype, but it is ",
                             py::repr(object).cast<std::string>()));
  }
  return dtypeOf(reinterpret_cast<THPDtype*>(object.ptr())->scalar_type);
}

AllreducePlan explain(const ProcessGroupTaco& group, uint64_t bytes, const py::object& dtype,
                      const c10d::ReduceOp& op) {
  const DType elements = dtypeOfPython(dtype);
  return group.communicator().explainAllReduce(bytes, elements, reduceOpOf("explain", op));
}

// The dispatch of a Python class: bound methods that wait must not hold the GIL.
using WithoutGil = py::call_guard<py::gil_scoped_release>;

void bindPlan(py::module_& module) {
  py::class_<AllreducePlan>(module, "AllreducePlan",
                            "How an all-reduce of a given size would run; printing it says so.")
      .def_property_readonly("algorithm",
                             [](const AllreducePlan& plan) { return name(plan.algorithm); })
      .def_readonly("piece_bytes", &AllreducePlan::pieceBytes)
      .def_property_readonly("why", &AllreducePlan::why)
      .def_property_readonly("why_dense", &AllreducePlan::whyDense)
      .def_readonly("topk_ratio", &AllreducePlan::topkRatio)
      .def_readonly("break_even_ratio", &AllreducePlan::breakEvenRatio)
      .def("__eq__", [](const AllreducePlan& a, const AllreducePlan& b) { return a == b; })
      .def("__str__", &AllreducePlan::describe)
      .def("__repr__", [](const AllreducePlan& plan) {
        return str("<AllreducePlan ", plan.describe(), ">");
      });
}

void bindGroup(py::module_& module) {
  using Group = ProcessGroupTaco;
  GroupClass group(module, "ProcessGroupTaco");
  OptionsClass optionsClass(group, "Options");
  bindTopk(module, group, optionsClass);
  group
      .def(py::init([](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                       c10::intrusive_ptr<Group::Options> options) {
             return c10::make_intrusive<Group>(store, rank, size, std::move(options));
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"), WithoutGil())
      .def_property_readonly("options", [](Group& self) { return self.getBackendOptions(); })
      .def("explain", &explain, py::arg("nbytes"), py::arg("dtype"), py::arg("op"))
      .def("describe", [](const Group& self) { return self.communicator().describe(); })
      .def("traffic",
           [](const Group& self) {
             const Traffic sent = self.communicator().traffic();
             return py::make_tuple(sent.sharedMemoryBytes, sent.networkBytes);
           })
      .def("shared_empty",
           [](Group& self, int64_t elements, const py::object& dtype) {
             dtypeOfPython(dtype);
             const auto scalar = reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type;
             py::gil_scoped_release release;
             return self.allocateTensor(elements, at::TensorOptions().dtype(scalar));
           },
           py::arg("elements"), py::arg("dtype"))
      .def("monitored_barrier",
           [](Group& self, std::optional<Millis> timeout, bool waitAllRanks) {
             c10d::BarrierOptions options;
             options.timeout = timeout.value_or(c10d::kUnsetTimeout);
             self.monitoredBarrier(options, waitAllRanks);
           },
           py::arg("timeout"), py::arg("wait_all_ranks"), WithoutGil());
}

// The flight record into `folder`, or to where failures write it.
std::string dump(std::optional<std::string> folder) {
  return translated("torch_taco.dump", [&] {
    if (!folder) folder = flightFolder(readSettings(processEnvironment()));
    if (!folder) {
      throw Error(ErrorCode::kInvalidArgument,
                  "TACO_DUMP_DIR is 'none', so the path of a folder must be passed");
    }
    return dumpFlightRecord(*folder, "torch_taco.dump() was called");
  });
}

}  // namespace
}  // namespace taco

PYBIND11_MODULE(_C, module) {
  taco::requireTorchVersion();
  // Registers the base classes that the ones below derive from.
  py::module_::import("torch._C._distributed_c10d");
  taco::bindPlan(module);
  taco::bindGroup(module);
  module.attr("__version__") = TACO_VERSION;
  module.attr("TORCH_VERSION") = TACO_TORCH_VERSION;
  taco::bindMpi(module);
  // For tests: see csrc/base/fault_point.h.
  module.def(
      "_set_fault_point",
      [](const std::string& name, int nth, const std::string& action) {
        taco::setFaultPoint(name, nth, taco::faultActionOf(action));
      },
      py::arg("name"), py::arg("nth") = 1, py::arg("action") = "kill");
  module.def("settings_markdown", &taco::settingsMarkdown, "The text of docs/settings.md.");
  module.def("_flag_latency_ns",
             [](int first, int second) {
               return taco::translated("taco bench", [&] { return taco::flagLatencyNs(first, second); });
             },
             py::arg("first_cpu"), py::arg("second_cpu"), taco::WithoutGil());
  module.def("dump", &taco::dump, py::arg("folder"), taco::WithoutGil());
  module.def("shutdown_all", &taco::ProcessGroupTaco::shutdownAll, py::arg("patience"),
             taco::WithoutGil());
}
