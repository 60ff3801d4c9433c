# SPDX-License-Identifier: MIT
# Compiler flags of our own code. Third-party headers are SYSTEM includes and stay silent.

find_program(GARONNE_CCACHE ccache)
mark_as_advanced(GARONNE_CCACHE)
if(GARONNE_CCACHE)
  # A precompiled header carries time stamps that ccache would otherwise count as changes.
  # Clones of the project share what they compile.
  set(garonne_launcher "${CMAKE_COMMAND}" -E env
    "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime"
    "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1 "${GARONNE_CCACHE}")
  foreach(language C CXX CUDA)
    if(NOT CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER ${garonne_launcher})
    endif()
  endforeach()
endif()

add_library(garonne_warnings INTERFACE)
set(garonne_warning_flags
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor
  -Woverloaded-virtual -Wundef -Wcast-align -Wdouble-promotion -Wformat=2 -Wextra-semi)
if(GARONNE_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # What is local to a source is global to those that are compiled behind it.
  list(TRANSFORM garonne_warning_flags REPLACE "^-Wshadow$" "-Wshadow=local")
  list(APPEND garonne_warning_flags -Wno-subobject-linkage)
endif()
# nvcc hands host code to g++ with line directives and helper code of its own, which -Wpedantic and
# the like would blame on us; it gets the short list.
target_compile_options(garonne_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${garonne_warning_flags}>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=cross-execution-space-call>")
if(GARONNE_WARNINGS_AS_ERRORS)
  target_compile_options(garonne_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Werror> "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Werror>")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 sees impossible overflows inside libstdc++ strings once they are inlined (GCC bug 105651).
  target_compile_options(garonne_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()

if(GARONNE_SANITIZERS)
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${GARONNE_SANITIZERS}>
    $<$<COMPILE_LANGUAGE:C,CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=${GARONNE_SANITIZERS})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Following variables through optimised and checked code takes 40 % of g++'s time; lines and functions stay known.
    add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fno-var-tracking>)
  endif()
endif()

if(GARONNE_FUZZ)
  # Older ones have no std::source_location with libstdc++.
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang" OR CMAKE_CXX_COMPILER_VERSION VERSION_LESS 16)
    message(FATAL_ERROR "GARONNE_FUZZ wants clang 16 or newer as CMAKE_C_COMPILER and CMAKE_CXX_COMPILER: scripts/fuzz finds one")
  endif()
  # What inputs reach is counted in all code; the targets bring the loop around it. Lines are counted, too, for
  # scripts/fuzz --coverage.
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=fuzzer-no-link>
    $<$<COMPILE_LANGUAGE:C,CXX>:-fno-sanitize-recover=all>
    $<$<COMPILE_LANGUAGE:C,CXX>:-fprofile-instr-generate> $<$<COMPILE_LANGUAGE:C,CXX>:-fcoverage-mapping>)
  add_link_options(-fprofile-instr-generate)
endif()

# By which ranks find out that they run the same program (base/build_id.hpp).
add_link_options(-Wl,--build-id=sha1)
