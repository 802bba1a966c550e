# taco_room(<room> [DEPENDS <lower room>...] [LINK <library>...] SOURCES <file.cc>...)
#
# One room of csrc/ as the static library taco_<room>. SOURCES are listed one by one; headers need no
# listing. DEPENDS names the rooms whose headers it includes. Every header of the room is also compiled
# alone by the target all_verify_interface_header_sets.
function(taco_room room)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "DEPENDS;LINK;SOURCES")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "taco_room(${room}): unknown argument ${arg_UNPARSED_ARGUMENTS}")
  endif()
  list(TRANSFORM arg_SOURCES PREPEND "${room}/")
  list(TRANSFORM arg_DEPENDS PREPEND "taco_")

  set(target taco_${room})
  if(arg_SOURCES)
    add_library(${target} STATIC ${arg_SOURCES})
    target_link_libraries(${target} PRIVATE taco_warnings)
    set(scope PUBLIC)
  else() # a room of headers only
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_link_libraries(${target} ${scope} ${arg_DEPENDS} ${arg_LINK} Threads::Threads)

  # Only to check them: a header that is not in the list is still part of the room.
  file(GLOB headers CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${room}/*.h")
  # Includes are written from the repository root.
  target_sources(${target} ${scope} FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${headers})
  set_target_properties(${target} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
endfunction()
