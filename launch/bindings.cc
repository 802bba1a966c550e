// torch_taco._launch: the launch helper for Python. Knows pybind11 and no torch, so that it does not
// depend on a torch minor.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>
#include <string>
#include <utility>

#include "csrc/base/format.h"
#include "launch/bindings_network.h"
#include "launch/bindings_text.h"
#include "launch/launch.h"
#include "launch/launch_env.h"
#include "launch/roll_call.h"

namespace taco {
namespace {

std::map<std::string, std::string> mapOf(const py::dict& items) {
  std::map<std::string, std::string> map;
  for (const auto& [key, value] : items) {
    if (!value.is_none()) map[bytesOf(key)] = bytesOf(value);
  }
  return map;
}

class PythonStore final : public RollCallStore {
 public:
  explicit PythonStore(py::object store) : store_(std::move(store)) {}

  void set(const std::string& key, const std::string& value) override {
    store_.attr("set")(key, textOf(value));
  }
  std::string get(const std::string& key) override {
    py::object value;
    try {
      value = store_.attr("get")(key);
    } catch (py::error_already_set& error) {
      // c10d's DistStoreError; Ctrl-C and others go their way.
      if (!error.matches(PyExc_RuntimeError)) throw;
      throw RollCallTimeout(error.what());
    }
    return py::isinstance<py::bytes>(value) ? value.cast<std::string>() : bytesOf(value);
  }
  int64_t add(const std::string& key, int64_t amount) override {
    return store_.attr("add")(key, amount).cast<int64_t>();
  }

 private:
  py::object store_;
};

void bindLaunch(py::module_& module) {
  py::class_<Launch>(module, "Launch",
                     "What the environment says about this process, node or launcher.")
      .def_property_readonly("row", [](const Launch& launch) { return launch.row; })
      .def_property_readonly("level", [](const Launch& launch) { return name(launch.level); })
      .def_readonly("rank", &Launch::rank)
      .def_readonly("world_size", &Launch::worldSize)
      .def_readonly("local_rank", &Launch::localRank)
      .def_readonly("local_world_size", &Launch::localWorldSize)
      .def_readonly("node_rank", &Launch::nodeRank)
      .def_readonly("nodes", &Launch::nodes)
      .def_property_readonly(
          "processes_per_node",
          [](const Launch& launch) -> py::object {
            if (launch.processesPerNode) {
              return py::int_(*launch.processesPerNode);
            }
            if (launch.processesPerNodeWord.empty()) return py::none();
            return textOf(launch.processesPerNodeWord);
          },
          "A number, the word auto, gpu or cpu, or None.")
      .def_property_readonly("hosts",
                             [](const Launch& launch) {
                               py::list hosts;
                               for (const HostSlots& host : launch.hosts) {
                                 hosts.append(py::make_tuple(textOf(host.host), host.slots));
                               }
                               return hosts;
                             })
      .def_property_readonly(
          "master_address",
          [](const Launch& launch) { return optionalTextOf(launch.masterAddress); })
      .def_readonly("master_port", &Launch::masterPort)
      .def_property_readonly(
          "head_address", [](const Launch& launch) { return optionalTextOf(launch.headAddress); })
      .def_readonly("head_port", &Launch::headPort)
      .def_property_readonly("role", [](const Launch& launch) { return launch.role; })
      .def_readonly("role_index", &Launch::roleIndex)
      .def_property_readonly(
          "values",
          [](const Launch& launch) {
            py::list values;
            for (const LaunchValue& value : launch.values) {
              values.append(py::make_tuple(value.field, textOf(value.value), textOf(value.origin)));
            }
            return values;
          })
      .def_property_readonly(
          "ignored",
          [](const Launch& launch) {
            py::list ignored;
            for (const LaunchIgnored& one : launch.ignored) {
              ignored.append(py::make_tuple(one.variable, textOf(one.value), textOf(one.why)));
            }
            return ignored;
          })
      .def_property_readonly("warnings",
                             [](const Launch& launch) { return listOf(launch.warnings); })
      .def_property_readonly("notes", [](const Launch& launch) { return listOf(launch.notes); })
      .def_property_readonly("has_several_nodes", &hasSeveralNodes)
      .def_property_readonly("wants_master_from_mpi", &wantsMasterFromMpi,
                             "No master, and started by an MPI: let rank 0 broadcast one.")
      .def("describe", [](const Launch& launch) { return textOf(describe(launch)); })
      .def("as_process", &asProcess,
           "This launch as one process of the job; LaunchError where it is a node with several.")
      .def(
          "require_master",
          [](const Launch& launch) {
            const Master master = requireMaster(launch);
            return py::make_tuple(textOf(master.address), master.port, textOf(master.origin));
          },
          "(address, port, origin), or LaunchError that says how to give one.")
      .def(
          "torch_environment",
          [](const Launch& launch, const py::object& address, int port) {
            py::dict environment;
            for (const auto& [key, value] :
                 torchEnvironment(launch, Master{bytesOf(address), port, ""})) {
              environment[py::str(key)] = textOf(value);
            }
            return environment;
          },
          py::arg("master_address"), py::arg("master_port"),
          "The variables that torch's env:// reads.")
      .def("require_slots", &requireSlots, py::arg("processes"))
      .def("__str__", [](const Launch& launch) { return textOf(describe(launch)); })
      .def("__repr__", [](const Launch& launch) {
        return str("<Launch ", launch.row, ", ", name(launch.level), ">");
      });
}

// LaunchError of Python: a ValueError with the attribute `code` ("E1" ... "E8", "level").
void bindError(py::module_& module) {
  static PyObject* type = nullptr;
  const std::string qualified = module.attr("__name__").cast<std::string>() + ".LaunchError";
  type = PyErr_NewExceptionWithDoc(
      qualified.c_str(), "The launch environment is wrong; code is the rule, E1 ... E8 or level.",
      PyExc_ValueError, nullptr);
  if (type == nullptr) throw py::error_already_set();
  module.add_object("LaunchError", py::reinterpret_borrow<py::object>(type));
  py::register_exception_translator(
      [](std::exception_ptr pointer) {  // NOLINT(performance-unnecessary-value-param):
                                        // pybind11's type
        try {
          if (pointer) std::rethrow_exception(pointer);
        } catch (const LaunchError& error) {
          py::object exception = py::reinterpret_borrow<py::object>(type)(textOf(error.what()));
          exception.attr("code") = name(error.rule());
          PyErr_SetObject(type, exception.ptr());
        }
      });
}

void bindReading(py::module_& module) {
  module.def(
      "read",
      [](const py::dict& variables, const py::dict& arguments, const std::string& procRoot) {
        return readLaunch(mapOf(variables), mapOf(arguments), systemSeams(procRoot));
      },
      py::arg("variables"), py::kw_only(), py::arg("arguments") = py::dict(),
      py::arg("proc_root") = "/proc",
      "Reads the environment by the decision table. arguments: rank, world_size, local_rank, "
      "local_world_size, launcher, master_addr, master_port, np, visible_gpus (None: not given).");
  module.def(
      "table",
      [] {
        py::list rows;
        for (const LaunchRow& row : launchTable()) {
          rows.append(py::make_tuple(row.name, row.detectedWhen, name(row.level), row.meaning));
        }
        return rows;
      },
      "The decision table: (name, detected when, level, meaning).");
  module.def("table_markdown", &launchTableMarkdown, "The table for docs/launching.md.");
  module.def(
      "roll_call",
      [](const py::object& store, int rank, int worldSize, const py::object& host, int processId,
         const std::string& row) {
        PythonStore adapter(store);
        rollCall(adapter, Member{rank, worldSize, bytesOf(host), processId, row});
      },
      py::arg("store"), py::kw_only(), py::arg("rank"), py::arg("world_size"), py::arg("host"),
      py::arg("pid"), py::arg("row") = "",
      "Finds ranks that are there twice and world sizes that differ; store: set, get, add.");
}

}  // namespace
}  // namespace taco

PYBIND11_MODULE(_launch, module) {
  module.doc() = "Reads what a launcher put into the environment. See docs/launching.md.";
  taco::bindError(module);
  taco::bindLaunch(module);
  taco::bindNetwork(module);
  taco::bindReading(module);
}
