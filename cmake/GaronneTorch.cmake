# SPDX-License-Identifier: MIT
# The target garonne_torch: LibTorch's libraries, linked directly. TorchConfig.cmake is not used: it
# insists on a CUDA toolkit even for a build that uses none, and rewrites global CUDA flags.

find_path(GARONNE_TORCH_ROOT NAMES include/torch/csrc/api/include/torch/torch.h
  HINTS "${GARONNE_WHEELS}/torch" PATH_SUFFIXES torch libtorch
  DOC "LibTorch, or the folder torch/ of an installed torch wheel")
if(NOT GARONNE_TORCH_ROOT)
  message(FATAL_ERROR "LibTorch 2.11 was not found. ${garonne_setup_hint} "
    "GARONNE_TORCH_ROOT names its folder directly.")
endif()

set(GARONNE_TORCH_VERSION "")
foreach(part MAJOR MINOR PATCH)
  file(STRINGS "${GARONNE_TORCH_ROOT}/include/torch/headeronly/version.h" line
    REGEX "#define TORCH_VERSION_${part} ")
  string(REGEX MATCH "[0-9]+$" number "${line}")
  list(APPEND GARONNE_TORCH_VERSION "${number}")
endforeach()
list(JOIN GARONNE_TORCH_VERSION "." GARONNE_TORCH_VERSION)
if(GARONNE_WITH_CUDA AND GARONNE_TORCH_VERSION VERSION_LESS 2.11)
  # Its addmm_out takes no sum in float32 of factors in bfloat16, which gradients of weights are.
  message(FATAL_ERROR "LibTorch ${GARONNE_TORCH_VERSION} in ${GARONNE_TORCH_ROOT} adds no products of bfloat16 to sums in "
    "float32 on GPUs; a build with CUDA needs 2.11. GARONNE_TORCH_ROOT or CMAKE_PREFIX_PATH names another LibTorch.")
endif()
if(NOT GARONNE_TORCH_VERSION MATCHES "^2\\.11\\.")
  message(WARNING "LibTorch ${GARONNE_TORCH_VERSION} is untested; 2.11 is what Garonne is written for.")
endif()

add_library(garonne_torch INTERFACE)
target_include_directories(garonne_torch SYSTEM INTERFACE
  "${GARONNE_TORCH_ROOT}/include" "${GARONNE_TORCH_ROOT}/include/torch/csrc/api/include")

# The wheel's headers carry a newer fmt than the system's library. The system's is put before them, so that
# fmt is compiled once, in its library, and not in every file.
get_target_property(garonne_fmt_include fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
find_path(GARONNE_FMT_INCLUDE fmt/format.h HINTS ${garonne_fmt_include})
mark_as_advanced(GARONNE_FMT_INCLUDE)
if(NOT GARONNE_FMT_INCLUDE)
  message(FATAL_ERROR "The headers of fmt were not found. ${garonne_setup_hint}")
endif()
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/fmt_first")
file(CREATE_LINK "${GARONNE_FMT_INCLUDE}/fmt" "${PROJECT_BINARY_DIR}/fmt_first/fmt" SYMBOLIC)
target_include_directories(garonne_torch SYSTEM BEFORE INTERFACE "${PROJECT_BINARY_DIR}/fmt_first")

function(garonne_torch_library name)
  find_library(GARONNE_${name}_LIBRARY ${name} PATHS "${GARONNE_TORCH_ROOT}/lib" NO_DEFAULT_PATH REQUIRED)
  mark_as_advanced(GARONNE_${name}_LIBRARY)
  add_library(garonne_${name} SHARED IMPORTED GLOBAL)
  set_target_properties(garonne_${name} PROPERTIES IMPORTED_LOCATION "${GARONNE_${name}_LIBRARY}")
  target_link_libraries(garonne_torch INTERFACE garonne_${name})
endfunction()

if(GARONNE_WITH_CUDA)
  # The CUDA library registers its operators when it is loaded; no symbol of ours asks for it, so a
  # linker that drops libraries without a use would drop it.
  target_link_options(garonne_torch INTERFACE LINKER:--no-as-needed)
  garonne_torch_library(torch_cuda)
  garonne_torch_library(c10_cuda)
  # Two run times of CUDA in one process know nothing of each other.
  file(STRINGS "${GARONNE_c10_cuda_LIBRARY}" garonne_torch_cudart REGEX "^libcudart[^ ]*\\.so\\.[0-9]+")
  if(garonne_torch_cudart MATCHES "\\.so\\.([0-9]+)" AND NOT CMAKE_MATCH_1 EQUAL garonne_cuda_major)
    message(FATAL_ERROR "LibTorch in ${GARONNE_TORCH_ROOT} is for CUDA ${CMAKE_MATCH_1}, and ${CMAKE_CUDA_COMPILER} is of "
      "CUDA ${CUDAToolkit_VERSION}. CUDACXX names another compiler, CMAKE_PREFIX_PATH another LibTorch.")
  endif()
endif()
garonne_torch_library(torch_cpu)
garonne_torch_library(c10)
target_link_libraries(garonne_torch INTERFACE Threads::Threads ${CMAKE_DL_LIBS})
if(GARONNE_WITH_CUDA)
  target_link_libraries(garonne_torch INTERFACE $<LINK_ONLY:garonne_cuda>)
endif()

# One OpenMP run time in the process. The wheel brings its own libgomp under the soname of the
# system's: whichever is found first serves everybody, so everything is linked to the wheel's. -fopenmp is needed besides: without it at::parallel_for in our sources is
# silently a serial loop. It is no link option, or g++ would add the system's libgomp.
target_compile_options(garonne_torch INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
file(GLOB garonne_torch_gomp "${GARONNE_TORCH_ROOT}/lib/libgomp*.so*")
if(garonne_torch_gomp)
  list(GET garonne_torch_gomp 0 garonne_torch_gomp)
  add_library(garonne_gomp SHARED IMPORTED GLOBAL)
  set_target_properties(garonne_gomp PROPERTIES IMPORTED_LOCATION "${garonne_torch_gomp}")
  target_link_libraries(garonne_torch INTERFACE garonne_gomp)
  # For everyone who asks CMake for OpenMP after this, Kokkos first of all.
  set(OpenMP_gomp_LIBRARY "${garonne_torch_gomp}" CACHE FILEPATH "The OpenMP run time" FORCE)
else()
  target_link_options(garonne_torch INTERFACE -fopenmp)
endif()
# A search path of the old kind goes before LD_LIBRARY_PATH, which on clusters often names another
# compiler's libgomp.
target_link_options(garonne_torch INTERFACE LINKER:--disable-new-dtags)
