# hwy::hwy, Google's Highway. Newer packages ship a CMake file; older ones (Ubuntu 22.04) header and library.
find_package(hwy QUIET)
if(NOT TARGET hwy::hwy)
  find_path(TACO_HWY_INCLUDE hwy/highway.h)
  find_library(TACO_HWY_LIBRARY hwy)
  mark_as_advanced(TACO_HWY_INCLUDE TACO_HWY_LIBRARY)
  if(NOT TACO_HWY_INCLUDE OR NOT TACO_HWY_LIBRARY)
    message(FATAL_ERROR "Highway (hwy/highway.h, libhwy) was not found: apt-get install libhwy-dev")
  endif()
  add_library(hwy::hwy UNKNOWN IMPORTED)
  set_target_properties(hwy::hwy PROPERTIES IMPORTED_LOCATION "${TACO_HWY_LIBRARY}"
                                            INTERFACE_INCLUDE_DIRECTORIES "${TACO_HWY_INCLUDE}")
endif()
