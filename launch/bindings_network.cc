#include "launch/bindings_network.h"

#include <pybind11/stl.h>

#include <chrono>
#include <string>
#include <vector>

#include "launch/address.h"
#include "launch/bindings_text.h"
#include "launch/port_check.h"
#include "launch/resolve.h"

namespace taco {
namespace {

using std::chrono::milliseconds;

// A line to a Python callable; also the place where a signal (Ctrl-C) ends a long wait.
Progress progressTo(const py::object& callable) {
  if (callable.is_none()) return [](const std::string&) {};
  return [&callable](const std::string& line) {
    const py::gil_scoped_acquire gil;
    callable(textOf(line));
  };
}

NetworkSeams interruptibleNetwork() {
  NetworkSeams seams = systemNetwork();
  const auto sleep = seams.sleep;
  seams.sleep = [sleep](milliseconds time) {
    sleep(time);
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  };
  return seams;
}

milliseconds millisOf(double seconds) { return milliseconds(static_cast<int64_t>(seconds * 1000)); }

}  // namespace

void bindNetwork(py::module_& module) {
  module.def(
      "resolve",
      [](const py::object& host, double deadline, const py::object& progress,
         const std::string& origin) {
        const std::string name = bytesOf(host);
        const Progress line = progressTo(progress);
        std::vector<std::string> addresses;
        {
          const py::gil_scoped_release unlocked;
          addresses = resolve(name, millisOf(deadline), origin, line, interruptibleNetwork());
        }
        return listOf(addresses);
      },
      py::arg("host"), py::arg("deadline_s") = 60.0, py::arg("progress") = py::none(),
      py::arg("origin") = "MASTER_ADDR",
      "The addresses of a host, asked again until the deadline; progress(line) every 5 s.");
  module.def(
      "wait_for_listener",
      [](const py::object& host, int port, double deadline, const py::object& progress,
         const std::string& origin) {
        const std::string name = bytesOf(host);
        const Progress line = progressTo(progress);
        std::string address;
        {
          const py::gil_scoped_release unlocked;
          address =
              waitForListener(name, port, millisOf(deadline), origin, line, interruptibleNetwork());
        }
        return textOf(address);
      },
      py::arg("host"), py::arg("port"), py::arg("deadline_s") = 60.0,
      py::arg("progress") = py::none(), py::arg("origin") = "MASTER_ADDR",
      "Waits until something listens at host:port; returns the address of the host where it does.");
  module.def(
      "reachable_address",
      [](const py::object& own, const py::object& towards) {
        return textOf(reachableAddress(bytesOf(own), bytesOf(towards), systemNetwork()));
      },
      py::arg("name"), py::arg("towards") = "",
      "An address at which other hosts reach this one, whose own name is `name`.");
  module.def(
      "parse_address",
      [](const py::object& text, const std::string& origin) {
        const Address address = parseAddress(bytesOf(text), origin);
        return py::make_tuple(textOf(address.host), address.port);
      },
      py::arg("text"), py::arg("origin") = "the address", "(host without brackets, port or None)");
  module.def(
      "parse_port",
      [](const py::object& text, const std::string& origin) {
        return parsePort(bytesOf(text), origin);
      },
      py::arg("text"), py::arg("origin") = "the port");
  module.def(
      "host_and_port",
      [](const py::object& host, int port) { return textOf(hostAndPort(bytesOf(host), port)); },
      py::arg("host"), py::arg("port"), "host:port, with brackets around an IPv6 address.");
  module.def(
      "is_loopback", [](const py::object& host) { return isLoopback(bytesOf(host)); },
      py::arg("host"));
  module.def(
      "check_port",
      [](int port, const std::string& origin, const std::string& procRoot) {
        parsePort(std::to_string(port), origin);
        requireFreePort(port, origin, systemSeams(procRoot));
      },
      py::arg("port"), py::arg("origin") = "MASTER_PORT", py::arg("proc_root") = "/proc",
      "LaunchError when this host cannot listen on the port: who does, where readable.");
}

}  // namespace taco
