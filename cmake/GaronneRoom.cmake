# SPDX-License-Identifier: MIT
# garonne_room(<room> [TORCH] [SOURCES ...] [APART ...] [HEADERS ...] [PRIVATE_HEADERS ...]
#   [USES <rooms>] [LINK <targets>] [PRIVATE_LINK <targets>]
#   [DEFINITIONS <definitions>])
# garonne_compile_together(<target> [APART <sources>])
#
# Makes the library garonne_<room> with the alias garonne::<room>. HEADERS are those that other
# rooms include, PRIVATE_HEADERS stay inside (scripts/check-includes holds both). LINK holds third-party targets
# that the room's headers need, PRIVATE_LINK those that only its sources need; DEFINITIONS are the
# sources' own. TORCH says that the room may include torch; its sources then share one precompiled
# torch header.
#
# With GARONNE_UNITY the sources are compiled some together, so that headers are read and templates made once
# for all of them. Local names are then seen by others. APART are sources that are compiled alone: those of one
# kind, a row of a registry each, which have the same local names on purpose, and those that builds with CUDA have in
# the place of others: the rest is then the same in all builds, and a compiler cache knows it.

function(garonne_compile_together target)
  cmake_parse_arguments(PARSE_ARGV 1 TOGETHER "" "" "APART")
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${GARONNE_UNITY} UNITY_BUILD_BATCH_SIZE 8)
  set_source_files_properties(${TOGETHER_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# One translation unit makes the precompiled header for every room with torch.
function(garonne_make_torch_precompiled_header)
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/torch_precompiled.cpp"
    CONTENT "// Carries the precompiled torch header.\n")
  add_library(garonne_torch_precompiled STATIC "${PROJECT_BINARY_DIR}/torch_precompiled.cpp")
  # The same flags as the rooms have: g++ refuses a precompiled header made with others.
  target_link_libraries(garonne_torch_precompiled PRIVATE garonne_torch fmt::fmt nlohmann_json::nlohmann_json
    garonne_warnings)
  # What nearly every file with torch includes, and no more: <torch/torch.h> takes 4 s to load, this 0.5 s.
  target_precompile_headers(garonne_torch_precompiled PRIVATE
    <ATen/Functions.h> <ATen/core/Tensor.h> <fmt/format.h> <nlohmann/json.hpp>)
endfunction()

function(garonne_use_torch_precompiled_header target)
  if(TARGET garonne_torch_precompiled)
    # CMake compiles programs with -fPIE; g++ wants what the precompiled header was made with.
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "EXECUTABLE")
      set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fPIC>)
    endif()
    target_precompile_headers(${target} REUSE_FROM garonne_torch_precompiled)
  endif()
endfunction()

function(garonne_room room)
  cmake_parse_arguments(PARSE_ARGV 1 ROOM "TORCH" "" 
    "SOURCES;APART;HEADERS;PRIVATE_HEADERS;USES;LINK;PRIVATE_LINK;DEFINITIONS")
  if(ROOM_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "garonne_room(${room}): unknown arguments ${ROOM_UNPARSED_ARGUMENTS}")
  endif()
  set(target garonne_${room})
  list(TRANSFORM ROOM_USES PREPEND garonne:: OUTPUT_VARIABLE used_rooms)
  if(ROOM_TORCH)
    list(APPEND ROOM_LINK garonne_torch)
  endif()

  if(ROOM_SOURCES)
    list(APPEND ROOM_SOURCES ${ROOM_APART})
    add_library(${target} STATIC ${ROOM_SOURCES} ${ROOM_HEADERS} ${ROOM_PRIVATE_HEADERS})
    garonne_compile_together(${target} APART ${ROOM_APART})
    target_include_directories(${target} PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>"
      "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/garonne>")
    target_link_libraries(${target} PUBLIC ${used_rooms} ${ROOM_LINK}
      PRIVATE ${ROOM_PRIVATE_LINK} garonne_warnings)
    target_compile_definitions(${target} PRIVATE ${ROOM_DEFINITIONS})
    if(ROOM_TORCH)
      garonne_use_torch_precompiled_header(${target})
    endif()
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE "${PROJECT_SOURCE_DIR}/src")
    target_link_libraries(${target} INTERFACE ${used_rooms} ${ROOM_LINK} ${ROOM_PRIVATE_LINK})
  endif()
  add_library(garonne::${room} ALIAS ${target})

  # The test that compiles headers alone reads these. One that has a source of its name is compiled alone
  # with it: such a source includes it first (scripts/check-includes).
  set(headers "")
  foreach(header IN LISTS ROOM_HEADERS ROOM_PRIVATE_HEADERS)
    string(REGEX REPLACE "hpp$" "cpp" source "${header}")
    if(NOT source IN_LIST ROOM_SOURCES)
      list(APPEND headers "${room}/${header}")
    endif()
  endforeach()
  set_property(GLOBAL APPEND PROPERTY GARONNE_ROOMS ${room})
  set_property(GLOBAL PROPERTY GARONNE_HEADERS_${room} ${headers})
  set_property(GLOBAL PROPERTY GARONNE_TORCH_${room} ${ROOM_TORCH})
endfunction()

if(NOT GARONNE_ROOMS_WITHOUT_TORCH)
  garonne_make_torch_precompiled_header()
endif()
