# SPDX-License-Identifier: MIT
# The target headers_compile_alone: one translation unit for each header of each room that has no source of
# its own name, which includes it twice and nothing else.

add_custom_target(headers_compile_alone)
get_property(rooms GLOBAL PROPERTY GARONNE_ROOMS)
foreach(room IN LISTS rooms)
  get_property(headers GLOBAL PROPERTY GARONNE_HEADERS_${room})
  set(sources "")
  foreach(header IN LISTS headers)
    string(MAKE_C_IDENTIFIER "${header}" identifier)
    set(source "${PROJECT_BINARY_DIR}/headers/${identifier}.cpp")
    file(CONFIGURE OUTPUT "${source}" CONTENT "#include \"@header@\"\n#include \"@header@\"\n" @ONLY)
    list(APPEND sources "${source}")
  endforeach()
  if(sources)
    add_library(headers_${room} OBJECT EXCLUDE_FROM_ALL ${sources})
    target_link_libraries(headers_${room} PRIVATE garonne::${room} garonne_warnings)
    get_property(torch GLOBAL PROPERTY GARONNE_TORCH_${room})
    if(torch)
      garonne_use_torch_precompiled_header(headers_${room})
    endif()
    add_dependencies(headers_compile_alone headers_${room})
  endif()
endforeach()
add_test(NAME headers_compile_alone
  COMMAND "${CMAKE_COMMAND}" --build "${PROJECT_BINARY_DIR}" --target headers_compile_alone)
set_tests_properties(headers_compile_alone PROPERTIES TIMEOUT 900 PROCESSORS 2 LABELS "source")
