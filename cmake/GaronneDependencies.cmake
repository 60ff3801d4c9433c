# SPDX-License-Identifier: MIT
# Finds what others wrote. Nothing is downloaded here: scripts/setup puts private copies under
# .deps, which are looked into first, and everything may come from elsewhere through
# CMAKE_PREFIX_PATH.

set(GARONNE_DEPS "${PROJECT_SOURCE_DIR}/.deps" CACHE PATH "Where scripts/setup puts its private copies")
if(GARONNE_WITH_CUDA)
  # A link where it was there before there was a choice; what is compiled names the folder.
  string(REGEX MATCH "[0-9]+" garonne_architecture "${GARONNE_CUDA_ARCHITECTURES}")
  file(REAL_PATH "${GARONNE_DEPS}/kokkos-cuda-${garonne_architecture}" garonne_kokkos)
  list(PREPEND CMAKE_PREFIX_PATH "${garonne_kokkos}")
  # A cached answer may be of another architecture.
  string(FIND "${Kokkos_DIR}" "${GARONNE_DEPS}/kokkos-cuda" garonne_private)
  string(FIND "${Kokkos_DIR}" "${garonne_kokkos}/" garonne_same)
  if(garonne_private EQUAL 0 AND NOT garonne_same EQUAL 0)
    unset(Kokkos_DIR CACHE)
  endif()
else()
  list(PREPEND CMAKE_PREFIX_PATH "${GARONNE_DEPS}/kokkos")
endif()
# The folder has the version of Python in its name.
file(GLOB garonne_wheels LIST_DIRECTORIES true "${GARONNE_DEPS}/python/lib/python3*/site-packages")
set(GARONNE_WHEELS "${garonne_wheels}" CACHE PATH "Folder of installed Python wheels that libraries are taken from")
if(NOT IS_DIRECTORY "${GARONNE_WHEELS}")
  # A cached answer from before scripts/setup ran is no answer.
  set(GARONNE_WHEELS "${garonne_wheels}" CACHE PATH "" FORCE)
endif()

set(garonne_setup_hint "Run scripts/setup, or put it on CMAKE_PREFIX_PATH.")
if(GARONNE_WITH_CUDA)
  set(garonne_setup_hint "Run scripts/setup --cuda --architecture ${garonne_architecture}, or put it on CMAKE_PREFIX_PATH.")
endif()

# --- Debian packages, or the site's own -------------------------------------------------------
# GoogleTest's and others' messages already say what is missing; the hint says what to do about it.
macro(garonne_require package)
  find_package(${package} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "${package} was not found. ${garonne_setup_hint}")
  endif()
endmacro()

set(THREADS_PREFER_PTHREAD_FLAG ON)
garonne_require(Threads)
garonne_require(fmt)
garonne_require(spdlog)
garonne_require(nlohmann_json)
garonne_require(CLI11)
garonne_require(tomlplusplus)
garonne_require(MPI COMPONENTS C)
# mpi.h would bring in the C++ bindings, which are not linked.
target_compile_definitions(MPI::MPI_C INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
set(HDF5_PREFER_PARALLEL ON)
garonne_require(HDF5 COMPONENTS C HL)
# The headers of a parallel HDF5 include MPI's.
add_library(garonne_hdf5 INTERFACE)
target_link_libraries(garonne_hdf5 INTERFACE HDF5::HDF5 MPI::MPI_C)
if(GARONNE_BUILD_TESTS)
  garonne_require(GTest)
  garonne_require(ZLIB)
endif()

# garonne_plain_library(<name> <header>): garonne_<name>, of a library that comes without CMake files.
function(garonne_plain_library name header)
  string(TOUPPER "${name}" upper)
  find_path(GARONNE_${upper}_INCLUDE ${header})
  find_library(GARONNE_${upper}_LIBRARY ${name})
  if(NOT GARONNE_${upper}_INCLUDE OR NOT GARONNE_${upper}_LIBRARY)
    message(FATAL_ERROR "${name} was not found. ${garonne_setup_hint}")
  endif()
  mark_as_advanced(GARONNE_${upper}_INCLUDE GARONNE_${upper}_LIBRARY)
  add_library(garonne_${name} UNKNOWN IMPORTED)
  set_target_properties(garonne_${name} PROPERTIES
    IMPORTED_LOCATION "${GARONNE_${upper}_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${GARONNE_${upper}_INCLUDE}")
endfunction()
garonne_plain_library(xxhash xxhash.h)
# Chunks of Zarr stores.
garonne_plain_library(blosc blosc.h)
garonne_plain_library(deflate libdeflate.h)
garonne_plain_library(zstd zstd.h)
# Chunks that h5py compressed as lzf; without it the answer there is a named error.
find_path(GARONNE_LZF_INCLUDE lzf.h PATH_SUFFIXES liblzf)
find_library(GARONNE_LZF_LIBRARY lzf)
mark_as_advanced(GARONNE_LZF_INCLUDE GARONNE_LZF_LIBRARY)
set(GARONNE_HAVE_LZF FALSE)
if(GARONNE_LZF_INCLUDE AND GARONNE_LZF_LIBRARY)
  set(GARONNE_HAVE_LZF TRUE)
  add_library(garonne_lzf UNKNOWN IMPORTED)
  set_target_properties(garonne_lzf PROPERTIES
    IMPORTED_LOCATION "${GARONNE_LZF_LIBRARY}"
    INTERFACE_COMPILE_DEFINITIONS GARONNE_HAVE_LZF
    INTERFACE_INCLUDE_DIRECTORIES "${GARONNE_LZF_INCLUDE}")
endif()

# Expressions and normal forms of tokenizers. Neither comes with files for CMake everywhere.
foreach(library IN ITEMS pcre2:pcre2.h:pcre2-8 utf8proc:utf8proc.h:utf8proc)
  string(REPLACE ":" ";" library "${library}")
  list(GET library 0 name)
  list(GET library 1 header)
  list(GET library 2 file)
  string(TOUPPER ${name} upper)
  find_path(GARONNE_${upper}_INCLUDE ${header})
  find_library(GARONNE_${upper}_LIBRARY ${file})
  mark_as_advanced(GARONNE_${upper}_INCLUDE GARONNE_${upper}_LIBRARY)
  if(NOT GARONNE_${upper}_INCLUDE OR NOT GARONNE_${upper}_LIBRARY)
    message(FATAL_ERROR "${name} was not found. ${garonne_setup_hint}")
  endif()
  add_library(garonne_${name} UNKNOWN IMPORTED)
  set_target_properties(garonne_${name} PROPERTIES
    IMPORTED_LOCATION "${GARONNE_${upper}_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${GARONNE_${upper}_INCLUDE}")
endforeach()

# Fourier transforms and sparse factors of the data generators: headers alone. Eigen without its
# few parts under the LGPL.
find_path(GARONNE_POCKETFFT_INCLUDE pocketfft_hdronly.h HINTS "${GARONNE_DEPS}/pocketfft"
  PATH_SUFFIXES pocketfft)
if(NOT GARONNE_POCKETFFT_INCLUDE)
  message(FATAL_ERROR "pocketfft was not found. ${garonne_setup_hint}")
endif()
mark_as_advanced(GARONNE_POCKETFFT_INCLUDE)
add_library(garonne_pocketfft INTERFACE)
target_include_directories(garonne_pocketfft SYSTEM INTERFACE "${GARONNE_POCKETFFT_INCLUDE}")
garonne_require(Eigen3 NO_MODULE)
set_property(TARGET Eigen3::Eigen APPEND PROPERTY
  INTERFACE_COMPILE_DEFINITIONS EIGEN_MPL2_ONLY)

# A mixed-integer solver, behind one interface of the plan room; without it the answer there is a
# named error. The wheel's own CMake files name a folder that it does not have, so we look ourselves.
find_path(GARONNE_HIGHS_INCLUDE Highs.h HINTS "${GARONNE_WHEELS}/highsbox/highs_dist/include"
  PATH_SUFFIXES highs)
find_library(GARONNE_HIGHS_LIBRARY highs HINTS "${GARONNE_WHEELS}/highsbox/highs_dist/lib")
mark_as_advanced(GARONNE_HIGHS_INCLUDE GARONNE_HIGHS_LIBRARY)
set(GARONNE_HAVE_HIGHS FALSE)
if(GARONNE_HIGHS_INCLUDE AND GARONNE_HIGHS_LIBRARY)
  set(GARONNE_HAVE_HIGHS TRUE)
  add_library(garonne_highs SHARED IMPORTED GLOBAL)
  set_target_properties(garonne_highs PROPERTIES
    IMPORTED_LOCATION "${GARONNE_HIGHS_LIBRARY}"
    INTERFACE_COMPILE_DEFINITIONS GARONNE_HAVE_HIGHS
    INTERFACE_INCLUDE_DIRECTORIES "${GARONNE_HIGHS_INCLUDE}")
endif()

# --- CUDA, before Kokkos, which is then a CUDA library -------------------------------------------
if(GARONNE_WITH_CUDA)
  include(GaronneCuda)
endif()

# --- Torch, before Kokkos, which is then linked to torch's OpenMP run time -----------------
if(NOT GARONNE_ROOMS_WITHOUT_TORCH)
  include(GaronneTorch)
endif()

# --- Kokkos -----------------------------------------------------------------------------------
find_package(Kokkos 4.5...<6 QUIET)
if(NOT Kokkos_FOUND)
  message(FATAL_ERROR "Kokkos 4.5 to 5 was not found. ${garonne_setup_hint}")
endif()

# --- OpenBLAS, opened at run time -------------------------------------------------------------
find_file(GARONNE_OPENBLAS_LIBRARY libscipy_openblas.so
  PATHS "${GARONNE_WHEELS}/scipy_openblas32/lib" NO_DEFAULT_PATH
  DOC "The OpenBLAS that the kernels room opens at run time; empty for none")
if(NOT GARONNE_OPENBLAS_LIBRARY)
  set(GARONNE_OPENBLAS_LIBRARY "" CACHE FILEPATH "" FORCE)
endif()
