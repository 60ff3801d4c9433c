// SPDX-License-Identifier: MIT
// CUDA 13 changed the signatures of three functions that Kokkos 4.5 calls; these overloads have the
// old ones. Force-included into every CUDA source of Kokkos and of ours that includes Kokkos. Kokkos
// from 4.7.2 on needs none of it, and with an older toolkit the header is empty.
#pragma once

#if defined(__CUDACC__)
#include <cuda_runtime.h>

#if CUDART_VERSION >= 13000

inline cudaMemLocation garonne_memory_location(int device) {
  cudaMemLocation location{};
  location.type = device == cudaCpuDeviceId ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
  location.id = device == cudaCpuDeviceId ? 0 : device;
  return location;
}

inline cudaError_t cudaMemAdvise(const void* pointer, size_t bytes, cudaMemoryAdvise advice,
                                 int device) {
  return cudaMemAdvise(pointer, bytes, advice, garonne_memory_location(device));
}

inline cudaError_t cudaMemPrefetchAsync(const void* pointer, size_t bytes, int device,
                                        cudaStream_t stream = nullptr) {
  return cudaMemPrefetchAsync(pointer, bytes, garonne_memory_location(device), 0U, stream);
}

inline cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                            const cudaGraphNode_t* to, size_t count) {
  return cudaGraphAddDependencies(graph, from, to, nullptr, count);
}

#endif
#endif
