# SPDX-License-Identifier: MIT
# The CUDA compiler, and the target garonne_cuda: the run-time libraries that torch itself loads. The
# toolkit gives the compiler and the headers; its own copies of those libraries would be second ones
# in the process.
#
# Rooms link it as $<LINK_ONLY:garonne_cuda> and name the sources that include its headers by
# garonne_sees_cuda: all others are compiled by the same commands as without CUDA, so that a compiler
# cache has one object file for both.

set(CMAKE_CUDA_ARCHITECTURES "${GARONNE_CUDA_ARCHITECTURES}")
find_program(GARONNE_NVCC nvcc HINTS ENV CUDACXX PATHS /usr/local/cuda/bin "${GARONNE_WHEELS}/nvidia/cu13/bin")
if(NOT GARONNE_NVCC AND NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  message(FATAL_ERROR "No CUDA compiler (nvcc) was found. ${garonne_setup_hint}")
endif()
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  set(CMAKE_CUDA_COMPILER "${GARONNE_NVCC}" CACHE FILEPATH "The CUDA compiler")
endif()
enable_language(CUDA)
# After the language is enabled: CMake's test of the compiler does not know these yet.
# The wheel's shared run time is linked by name below.
set(CMAKE_CUDA_RUNTIME_LIBRARY None)
# CMake 3.25.1 does not know yet that nvcc from 12 on has C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
# g++ under nvcc has the same built-in folders; naming one of them again, as packages in /usr/include
# do, would hide the C headers from the C++ ones.
list(APPEND CMAKE_CUDA_IMPLICIT_INCLUDE_DIRECTORIES ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
# Kokkos asks for the driver's library, without which a program would not start where there is no GPU. It
# gets the few functions that it calls from the room of kernels.
add_library(CUDA::cuda_driver INTERFACE IMPORTED GLOBAL)
set_target_properties(CUDA::cuda_driver PROPERTIES INTERFACE_LINK_LIBRARIES garonne_cuda_driver)
# 12 for a site's own LibTorch of CUDA 12, on CMAKE_PREFIX_PATH; what the two differ in is in
# kokkos_cuda13_compat.hpp.
find_package(CUDAToolkit 12.6 REQUIRED)
set(garonne_cuda_major "${CUDAToolkit_VERSION_MAJOR}")
set(CMAKE_CUDA_FLAGS "${CMAKE_CUDA_FLAGS} -include ${PROJECT_SOURCE_DIR}/cmake/kokkos_cuda13_compat.hpp --expt-relaxed-constexpr --extended-lambda")

add_library(garonne_cuda INTERFACE)
target_include_directories(garonne_cuda SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
find_library(GARONNE_CUDART_LIBRARY NAMES libcudart.so.${garonne_cuda_major} cudart
  HINTS "${GARONNE_WHEELS}/nvidia/cu${garonne_cuda_major}/lib" "${GARONNE_WHEELS}/nvidia/cuda_runtime/lib"
    ${CUDAToolkit_LIBRARY_DIR} REQUIRED)
mark_as_advanced(GARONNE_CUDART_LIBRARY)
add_library(garonne_cudart SHARED IMPORTED GLOBAL)
set_target_properties(garonne_cudart PROPERTIES IMPORTED_LOCATION "${GARONNE_CUDART_LIBRARY}")
target_link_libraries(garonne_cuda INTERFACE garonne_cudart)
# Kokkos asks for the toolkit's target.
set_target_properties(CUDA::cudart PROPERTIES IMPORTED_LOCATION "${GARONNE_CUDART_LIBRARY}")

# garonne_sees_cuda(<sources>): C++ sources of the current room that include headers of CUDA or NCCL.
function(garonne_sees_cuda)
  set(folders ${CUDAToolkit_INCLUDE_DIRS} ${GARONNE_NCCL_INCLUDE})
  list(TRANSFORM folders PREPEND "-isystem")
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS ${folders})
endfunction()

# NCCL: headers and library from one place, and that place torch's, whose own copy would otherwise be
# a second one.
if(GARONNE_WITH_NCCL)
  find_path(GARONNE_NCCL_INCLUDE nccl.h HINTS "${GARONNE_WHEELS}/nvidia/nccl/include")
  find_library(GARONNE_NCCL_LIBRARY NAMES libnccl.so.2 nccl HINTS "${GARONNE_WHEELS}/nvidia/nccl/lib")
  if(NOT GARONNE_NCCL_INCLUDE OR NOT GARONNE_NCCL_LIBRARY)
    message(FATAL_ERROR "NCCL was not found. ${garonne_setup_hint}")
  endif()
  mark_as_advanced(GARONNE_NCCL_INCLUDE GARONNE_NCCL_LIBRARY)
  set(GARONNE_NCCL_VERSION "")
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS "${GARONNE_NCCL_INCLUDE}/nccl.h" line REGEX "#define NCCL_${part} ")
    string(REGEX MATCH "[0-9]+$" number "${line}")
    list(APPEND GARONNE_NCCL_VERSION "${number}")
  endforeach()
  list(JOIN GARONNE_NCCL_VERSION "." GARONNE_NCCL_VERSION)
  add_library(garonne_nccl SHARED IMPORTED GLOBAL)
  set_target_properties(garonne_nccl PROPERTIES IMPORTED_LOCATION "${GARONNE_NCCL_LIBRARY}")
endif()
