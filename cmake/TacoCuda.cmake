# Finds nvcc for cuda/. TACO_CUDA=AUTO is silent without one, ON insists, OFF does not look.
# Sets TACO_CUDA_FOUND and enables the CUDA language.
set(TACO_CUDA_FOUND OFF)
if(TACO_CUDA)
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER)
    find_program(
      TACO_NVCC nvcc
      HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH
      PATHS /usr/local/cuda
      PATH_SUFFIXES bin)
    mark_as_advanced(TACO_NVCC)
    if(TACO_NVCC)
      set(ENV{CUDACXX} "${TACO_NVCC}") # check_language() looks there
    endif()
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    # Ampere, Hopper, Blackwell; compute_100 came with CUDA 12.8. Asked of nvcc here, because the
    # architectures must be known before the language is enabled.
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      execute_process(COMMAND "${CMAKE_CUDA_COMPILER}" --list-gpu-arch OUTPUT_VARIABLE known)
      set(CMAKE_CUDA_ARCHITECTURES "")
      foreach(arch 80 90 100)
        if(known MATCHES "compute_${arch}[^0-9]")
          list(APPEND CMAKE_CUDA_ARCHITECTURES ${arch})
        endif()
      endforeach()
    endif()
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static) # no dependency on a libcudart: loads on a machine without CUDA
    enable_language(CUDA)
    set(CMAKE_CUDA_STANDARD 17) # CMake 3.25 knows no later one for nvcc
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    set(TACO_CUDA_FOUND ON)
    message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION}: ${CMAKE_CUDA_COMPILER}, for ${CMAKE_CUDA_ARCHITECTURES}")
  elseif(NOT TACO_CUDA STREQUAL AUTO)
    message(FATAL_ERROR "TACO_CUDA=${TACO_CUDA} but no nvcc was found. Put it on PATH, set CUDACXX to it, or "
                        "configure with -DTACO_CUDA=AUTO.")
  endif()
endif()
if(NOT TACO_CUDA_FOUND)
  message(STATUS "cuda/ is not built (TACO_CUDA=${TACO_CUDA})")
endif()
