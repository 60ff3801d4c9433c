# SPDX-License-Identifier: MIT
# What LibTorch for CUDA is linked to or opens while running, beside itself and the driver: all of the wheels, each of
# which looks for the others in the folder that it is in. `cmake -DGARONNE_TORCH_ROOT=DIR -DGARONNE_WHEELS=DIR -P` of this
# file says which files these are.
function(garonne_cuda_libraries result)
  set(found "")
  foreach(name torch_nvshmem torch_cuda_linalg caffe2_nvrtc)
    file(GLOB files "${GARONNE_TORCH_ROOT}/lib/lib${name}.so*")
    list(APPEND found ${files})
  endforeach()
  file(GLOB files "${GARONNE_WHEELS}/nvidia/*/lib/*.so*")
  list(APPEND found ${files})
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
  garonne_cuda_libraries(found)
  foreach(file IN LISTS found)
    execute_process(COMMAND "${CMAKE_COMMAND}" -E echo "${file}")
  endforeach()
endif()
