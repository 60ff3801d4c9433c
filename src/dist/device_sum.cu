#include "dist/device_sum.hpp"

#include <cuda_runtime.h>

#include <algorithm>

namespace garonne::dist {
namespace {

template <typename Scalar>
__global__ void sum_kernel(Scalar* result, DeviceTerms terms, std::int64_t elements) {
  add_device_terms(result, terms, elements,
                   static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
                   static_cast<std::int64_t>(gridDim.x) * blockDim.x);
}

}  // namespace

device::CudaStatus device_sum_in_order(void* result, const DeviceTerms& terms,
                                       std::int64_t elements, ScalarType type,
                                       device::CudaStream stream) {
  if (elements == 0) return device::CudaStatus::Success;
  constexpr int threads = 256;
  // Few blocks: the computation beside it wants the rest of the device.
  const auto blocks =
      static_cast<unsigned>(std::min<std::int64_t>((elements + threads - 1) / threads, 256));
  const auto native = reinterpret_cast<cudaStream_t>(stream);
  if (type == ScalarType::Float32) {
    sum_kernel<<<blocks, threads, 0, native>>>(static_cast<float*>(result), terms, elements);
  } else {
    sum_kernel<<<blocks, threads, 0, native>>>(static_cast<double*>(result), terms, elements);
  }
  return static_cast<device::CudaStatus>(cudaGetLastError());
}

}  // namespace garonne::dist
