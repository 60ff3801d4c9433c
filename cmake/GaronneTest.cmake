# SPDX-License-Identifier: MIT
# garonne_add_test(<name> SOURCES ... [RANKS 1 2 4] [LABELS long gpu peer ...] [LIBRARIES ...] [TIMEOUT seconds])
#   One GoogleTest binary. Without RANKS one CTest entry <name>; loading LibTorch costs a third of a
#   second, so the cases of a binary are not entries of their own. With RANKS the binary runs under
#   mpirun, with one entry <name>.np<n> for each count.
# garonne_add_script_test(<name> COMMAND ... [LABELS ...] [TIMEOUT seconds] [PROCESSORS n])
#   A shell or Python test of the built program, which it finds in GARONNE_BINARY; GARONNE_SOURCE is
#   the root of the project. It runs in a folder of its own.
#
# Labels: long (minutes), gpu (needs one), peer (compares with other programs, which it needs).

set(garonne_launcher_flags "")
set(garonne_test_environment "")
if(MPIEXEC_EXECUTABLE)
  execute_process(COMMAND "${MPIEXEC_EXECUTABLE}" --version OUTPUT_VARIABLE launcher_version ERROR_QUIET)
  if(launcher_version MATCHES "Open MPI|OpenRTE")
    set(garonne_launcher_flags --oversubscribe --bind-to none)
    # The same for tests that call mpirun themselves. Ranks that wait give way: other tests run beside them.
    list(APPEND garonne_test_environment
      OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1)
    execute_process(COMMAND id -u OUTPUT_VARIABLE user OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(user STREQUAL "0")
      list(PREPEND garonne_launcher_flags --allow-run-as-root)
      list(APPEND garonne_test_environment
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
    endif()
  endif()
endif()
set(GARONNE_MPIEXEC_FLAGS "${garonne_launcher_flags}" CACHE STRING "Flags of the MPI launcher in tests")

# Time limits are those of programs without sanitizers, times this.
set(GARONNE_TEST_PATIENCE 1)
if(GARONNE_SANITIZERS)
  set(GARONNE_TEST_PATIENCE 12)
endif()

# Most of what tests spend is compile time: of GoogleTest, fmt and JSON, which every test includes, and of
# optimising what runs once. So they share precompiled headers and are optimised less than what they test; those
# that take minutes are not.
set(garonne_test_optimisation $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
set(garonne_test_headers <algorithm> <array> <chrono> <cmath> <cstdint> <filesystem> <fstream> <functional> <map>
  <memory> <numeric> <optional> <random> <set> <span> <sstream> <string> <string_view> <tuple> <utility> <vector>
  <fmt/format.h> <fmt/ranges.h> <gtest/gtest.h> <nlohmann/json.hpp>)

# garonne_make_test_precompiled_header(<name> [HEADERS ...] [LIBRARIES ...])
function(garonne_make_test_precompiled_header name)
  cmake_parse_arguments(PARSE_ARGV 1 PRECOMPILED "" "" "HEADERS;LIBRARIES")
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/${name}.cpp" CONTENT "// Carries precompiled headers of tests.\n")
  add_library(${name} STATIC EXCLUDE_FROM_ALL "${PROJECT_BINARY_DIR}/${name}.cpp")
  target_link_libraries(${name} PRIVATE ${PRECOMPILED_LIBRARIES} fmt::fmt nlohmann_json::nlohmann_json GTest::gtest
    garonne_warnings)
  target_compile_options(${name} PRIVATE ${garonne_test_optimisation} $<$<COMPILE_LANGUAGE:CXX>:-fPIC>)
  target_precompile_headers(${name} PRIVATE ${PRECOMPILED_HEADERS} ${garonne_test_headers})
endfunction()
garonne_make_test_precompiled_header(garonne_test_precompiled)
if(NOT GARONNE_ROOMS_WITHOUT_TORCH)
  garonne_make_test_precompiled_header(garonne_torch_test_precompiled LIBRARIES garonne_torch
    HEADERS <ATen/Functions.h> <ATen/core/Tensor.h>)
endif()

# Libraries of garonne_add_test may be rooms; those with torch bring the precompiled header.
function(garonne_libraries_use_torch variable)
  set(${variable} FALSE PARENT_SCOPE)
  foreach(library IN LISTS ARGN)
    string(REGEX REPLACE "^garonne::" "" room "${library}")
    get_property(torch GLOBAL PROPERTY GARONNE_TORCH_${room})
    if(torch OR library STREQUAL "garonne_torch")
      set(${variable} TRUE PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

function(garonne_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 TEST "" "TIMEOUT" "SOURCES;RANKS;LABELS;LIBRARIES")
  if(TEST_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "garonne_add_test(${name}): unknown arguments ${TEST_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 480)
  endif()
  math(EXPR TEST_TIMEOUT "${TEST_TIMEOUT} * ${GARONNE_TEST_PATIENCE}")
  set(target test_${name})
  add_executable(${target} ${TEST_SOURCES})
  garonne_compile_together(${target})
  # PROJECT_SOURCE_DIR/tests: tests include each other's helpers as "support/file.hpp".
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/tests")
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  target_compile_definitions(${target} PRIVATE GARONNE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${target} PRIVATE ${TEST_LIBRARIES} fmt::fmt GTest::gtest garonne_warnings)
  garonne_libraries_use_torch(torch ${TEST_LIBRARIES})
  if(NOT "long" IN_LIST TEST_LABELS)
    target_compile_options(${target} PRIVATE ${garonne_test_optimisation})
  endif()
  # CMake compiles programs with -fPIE; g++ wants what the precompiled header was made with.
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fPIC>)
  if("long" IN_LIST TEST_LABELS)
    if(torch)
      target_precompile_headers(${target} REUSE_FROM garonne_torch_precompiled)
    endif()
  elseif(torch)
    target_precompile_headers(${target} REUSE_FROM garonne_torch_test_precompiled)
  else()
    target_precompile_headers(${target} REUSE_FROM garonne_test_precompiled)
  endif()

  if(NOT TEST_RANKS)
    target_link_libraries(${target} PRIVATE GTest::gtest_main)
    add_test(NAME ${name} COMMAND ${target})
    set_tests_properties(${name} PROPERTIES LABELS "${TEST_LABELS}" TIMEOUT ${TEST_TIMEOUT}
      PROCESSORS 2 ENVIRONMENT "OMP_NUM_THREADS=2;${garonne_test_environment}")
    return()
  endif()

  target_sources(${target} PRIVATE "${PROJECT_SOURCE_DIR}/tests/support/mpi_main.cpp")
  target_link_libraries(${target} PRIVATE MPI::MPI_C)
  foreach(ranks IN LISTS TEST_RANKS)
    set(entry ${name}.np${ranks})
    add_test(NAME ${entry} COMMAND "${MPIEXEC_EXECUTABLE}" ${GARONNE_MPIEXEC_FLAGS}
      ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:${target}>)
    set_tests_properties(${entry} PROPERTIES LABELS "mpi;${TEST_LABELS}" TIMEOUT ${TEST_TIMEOUT}
      PROCESSORS ${ranks} ENVIRONMENT "OMP_NUM_THREADS=1;${garonne_test_environment}")
  endforeach()
endfunction()

function(garonne_add_script_test name)
  cmake_parse_arguments(PARSE_ARGV 1 TEST "" "TIMEOUT;PROCESSORS" "COMMAND;LABELS")
  if(TEST_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "garonne_add_script_test(${name}): unknown arguments ${TEST_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 480)
  endif()
  math(EXPR TEST_TIMEOUT "${TEST_TIMEOUT} * ${GARONNE_TEST_PATIENCE}")
  if(NOT TEST_PROCESSORS)
    set(TEST_PROCESSORS 2)
  endif()
  set(folder "${PROJECT_BINARY_DIR}/tests/run/${name}")
  file(MAKE_DIRECTORY "${folder}")
  add_test(NAME ${name} COMMAND ${TEST_COMMAND} WORKING_DIRECTORY "${folder}")
  set_tests_properties(${name} PROPERTIES LABELS "script;${TEST_LABELS}" TIMEOUT ${TEST_TIMEOUT}
    PROCESSORS ${TEST_PROCESSORS}
    ENVIRONMENT "GARONNE_BINARY=${PROJECT_BINARY_DIR}/bin/garonne;GARONNE_SOURCE=${PROJECT_SOURCE_DIR};GARONNE_TEST_PATIENCE=${GARONNE_TEST_PATIENCE};GARONNE_FORKS=${PROJECT_BINARY_DIR}/tests;OMP_NUM_THREADS=1;${garonne_test_environment}")
endfunction()
