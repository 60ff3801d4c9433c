# SPDX-License-Identifier: MIT
# What `garonne --version` prints. The commit is asked for at every build, not only when CMake
# configures, and the file changes only when the answer does.

set(GARONNE_GENERATED "${PROJECT_BINARY_DIR}/generated")
find_package(Git QUIET)
add_custom_target(garonne_git_version
  COMMAND "${CMAKE_COMMAND}" -DSOURCE=${PROJECT_SOURCE_DIR} -DGIT=${GIT_EXECUTABLE}
    -DFALLBACK=${PROJECT_VERSION} -DOUTPUT=${GARONNE_GENERATED}/git_version.hpp
    -P "${PROJECT_SOURCE_DIR}/cmake/write_git_version.cmake"
  BYPRODUCTS "${GARONNE_GENERATED}/git_version.hpp"
  COMMENT "Asking git for the version" VERBATIM)

# garonne_version_source(<variable>): makes version.cpp and names it.
function(garonne_version_source variable)
  set(cuda "no")
  if(GARONNE_WITH_CUDA)
    list(JOIN GARONNE_CUDA_ARCHITECTURES " " architectures)
    set(cuda "${CMAKE_CUDA_COMPILER_VERSION}, architectures ${architectures}")
  endif()
  set(nccl "no")
  if(GARONNE_WITH_NCCL)
    set(nccl "${GARONNE_NCCL_VERSION}")
  endif()
  set(torch "no")
  if(NOT GARONNE_ROOMS_WITHOUT_TORCH)
    set(torch "${GARONNE_TORCH_VERSION}")
  endif()
  set(hdf5 "${HDF5_VERSION}")
  if(HDF5_IS_PARALLEL)
    string(APPEND hdf5 " (parallel)")
  endif()
  set(sanitizers "no")
  if(GARONNE_SANITIZERS)
    set(sanitizers "${GARONNE_SANITIZERS}")
  endif()
  set(openblas "no")
  if(GARONNE_OPENBLAS_LIBRARY)
    set(openblas "opened at run time")
  endif()
  string(REPLACE ";" ", " kokkos_devices "${Kokkos_DEVICES}")
  configure_file("${PROJECT_SOURCE_DIR}/src/base/version.cpp.in" "${GARONNE_GENERATED}/version.cpp" @ONLY)
  set(${variable} "${GARONNE_GENERATED}/version.cpp" PARENT_SCOPE)
endfunction()
