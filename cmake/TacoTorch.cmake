# torch as imported targets: taco_torch (libtorch_cpu, libc10), taco_torch_bindings (+ libtorch_python).
#
# find_package(Torch) is not used: it fails without the CUDA toolkit, sets nvcc flags for everybody and takes
# ten seconds. torch is not imported either, only located: its version is read from torch/version.py as text.
# Nothing is cached, so that a build folder follows the torch that is installed now.

# Outside a pip build, prefer the repository's own environment to the system's Python.
if(NOT Python_EXECUTABLE AND EXISTS "${PROJECT_SOURCE_DIR}/.venv/bin/python")
  set(Python_EXECUTABLE "${PROJECT_SOURCE_DIR}/.venv/bin/python")
endif()
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)

execute_process(
  COMMAND "${Python_EXECUTABLE}" -c
          "import importlib.util as u; s = u.find_spec('torch'); print(s.origin if s and s.origin else '')"
  OUTPUT_VARIABLE torchInit
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(NOT torchInit)
  message(FATAL_ERROR "no torch is installed for ${Python_EXECUTABLE}. Install one (pip install torch), or "
                      "configure with -DTACO_TORCH=OFF to build the engine and its tests alone.")
endif()
cmake_path(GET torchInit PARENT_PATH torchRoot)

file(STRINGS "${torchRoot}/version.py" torchVersionLine REGEX "^__version__ = " LIMIT_COUNT 1)
if(NOT torchVersionLine MATCHES "^__version__ = '(([0-9]+)\\.([0-9]+)[^']*)'")
  message(FATAL_ERROR "cannot read torch's version from ${torchRoot}/version.py: '${torchVersionLine}'")
endif()
set(TACO_TORCH_FULL_VERSION "${CMAKE_MATCH_1}")
set(TACO_TORCH_VERSION "${CMAKE_MATCH_2}.${CMAKE_MATCH_3}") # the binary interface is one minor's
if(TACO_TORCH_VERSION VERSION_LESS 2.9 OR TACO_TORCH_VERSION VERSION_GREATER 2.15)
  message(FATAL_ERROR "torch ${TACO_TORCH_FULL_VERSION} in ${torchRoot} is outside the supported 2.9 to 2.15.")
endif()
message(STATUS "torch ${TACO_TORCH_FULL_VERSION}: ${torchRoot}")

function(taco_torch_library name)
  add_library(taco_${name} SHARED IMPORTED)
  set_target_properties(
    taco_${name}
    PROPERTIES IMPORTED_LOCATION "${torchRoot}/lib/lib${name}.so"
               # torch's headers are not ours to warn about.
               INTERFACE_INCLUDE_DIRECTORIES "${torchRoot}/include;${torchRoot}/include/torch/csrc/api/include"
               INTERFACE_SYSTEM_INCLUDE_DIRECTORIES
               "${torchRoot}/include;${torchRoot}/include/torch/csrc/api/include"
               INTERFACE_COMPILE_DEFINITIONS "_GLIBCXX_USE_CXX11_ABI=1;USE_DISTRIBUTED;USE_C10D")
endfunction()
taco_torch_library(c10)
taco_torch_library(torch_cpu)
taco_torch_library(torch_python)

add_library(taco_torch INTERFACE)
target_link_libraries(taco_torch INTERFACE taco_torch_cpu taco_c10)
add_library(taco_torch_bindings INTERFACE)
target_link_libraries(taco_torch_bindings INTERFACE taco_torch_python taco_torch)

# torch's copy of pybind11 alone, for modules that must not link torch.
add_library(taco_pybind11 INTERFACE)
target_include_directories(taco_pybind11 SYSTEM INTERFACE "${torchRoot}/include")
