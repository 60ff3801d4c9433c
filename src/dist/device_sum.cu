#include "dist/device_sum.hpp"

#include <cuda_runtime.h>

#include <algorithm>

namespace garonne::dist {
namespace {

// No contraction can change the bits: there are no products here.
template <typename Scalar>
__global__ void sum_kernel(Scalar* result, DeviceTerms terms, std::int64_t elements) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; index < elements; index += stride) {
    Scalar sum = static_cast<const Scalar*>(terms.terms[0])[index];
    for (int term = 1; term < terms.count; ++term) {
      sum += static_cast<const Scalar*>(terms.terms[term])[index];
    }
    result[index] = sum;
  }
}

}  // namespace

int device_sum_in_order(void* result, const DeviceTerms& terms, std::int64_t elements,
                        ScalarType type, void* stream) {
  if (elements == 0) return cudaSuccess;
  constexpr int threads = 256;
  // Few blocks: the computation beside it wants the rest of the device.
  const auto blocks =
      static_cast<unsigned>(std::min<std::int64_t>((elements + threads - 1) / threads, 256));
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  if (type == ScalarType::Float32) {
    sum_kernel<<<blocks, threads, 0, cuda_stream>>>(static_cast<float*>(result), terms, elements);
  } else {
    sum_kernel<<<blocks, threads, 0, cuda_stream>>>(static_cast<double*>(result), terms, elements);
  }
  return cudaGetLastError();
}

}  // namespace garonne::dist
