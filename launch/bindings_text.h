#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <string>
#include <vector>

namespace taco {

namespace py = pybind11;

// Environment variables are bytes; Python shows those that are no UTF-8 as surrogates, and both
// ways must be the file system's.
inline std::string bytesOf(const py::handle& value) {
  const py::str text(value);
  auto bytes = py::reinterpret_steal<py::bytes>(PyUnicode_EncodeFSDefault(text.ptr()));
  if (!bytes) throw py::error_already_set();
  return bytes;
}

inline py::str textOf(const std::string& bytes) {
  auto text = py::reinterpret_steal<py::str>(
      PyUnicode_DecodeFSDefaultAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size())));
  if (!text) throw py::error_already_set();
  return text;
}

inline py::object optionalTextOf(const std::optional<std::string>& bytes) {
  return bytes ? py::object(textOf(*bytes)) : py::none();
}

inline py::list listOf(const std::vector<std::string>& texts) {
  py::list list;
  for (const std::string& text : texts) list.append(textOf(text));
  return list;
}

}  // namespace taco
