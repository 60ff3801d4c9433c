#include "dist/device_sum.hpp"

#include <cuda_runtime.h>

#include <algorithm>

namespace garonne::dist {
namespace {

__global__ void sum_kernel(void* result, DeviceTerms terms, std::int64_t elements, SumType type) {
  add_terms(result, terms, elements, type,
            static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
            static_cast<std::int64_t>(gridDim.x) * blockDim.x);
}

}  // namespace

device::CudaStatus device_sum_in_order(void* result, const DeviceTerms& terms,
                                       std::int64_t elements, SumType type,
                                       device::CudaStream stream) {
  if (elements == 0) return device::CudaStatus::Success;
  constexpr int threads = 256;
  // Few blocks: the computation beside it wants the rest of the device.
  const auto blocks =
      static_cast<unsigned>(std::min<std::int64_t>((elements + threads - 1) / threads, 256));
  sum_kernel<<<blocks, threads, 0, reinterpret_cast<cudaStream_t>(stream)>>>(result, terms,
                                                                             elements, type);
  return static_cast<device::CudaStatus>(cudaGetLastError());
}

}  // namespace garonne::dist
