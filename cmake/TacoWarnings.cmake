# One INTERFACE target carries the warnings of all our own code. Errors only with TACO_WERROR (CI):
# a user's newer compiler, with warnings we have not met, must not fail to build.
add_library(taco_warnings INTERFACE)
target_compile_options(
  taco_warnings
  INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wundef>
            # C99 designated initialisers that leave members at their defaults are how options structs
            # are meant to be filled.
            $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>)
if(TACO_WERROR)
  target_compile_options(taco_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
