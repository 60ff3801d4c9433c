// Sums in a fixed order of the terms, on a CUDA device. For the room's own use.
#pragma once

#include <cstdint>
#include <functional>

#include "device/cuda_runtime.hpp"
#include "dist/transport.hpp"

// One source for the device and, in tests, for the host.
#ifdef __CUDACC__
#define GARONNE_ON_DEVICE __host__ __device__
#else
#define GARONNE_ON_DEVICE
#endif

namespace garonne::dist {

// Most terms that one call adds.
inline constexpr int most_device_terms = 16;

// Addresses on the device, in the order of the sum; `count` of them, at least one.
struct DeviceTerms {
  const void* terms[most_device_terms] = {};
  int count = 0;
};

// result[elements] = (terms[0] + terms[1]) + ...: what worker `worker` of `workers` does. One of
// the terms may be `result` itself. There are no products, so nothing can be contracted.
template <typename Scalar>
GARONNE_ON_DEVICE void add_device_terms(Scalar* result, const DeviceTerms& terms,
                                        std::int64_t elements, std::int64_t worker,
                                        std::int64_t workers) {
  for (std::int64_t index = worker; index < elements; index += workers) {
    Scalar sum = static_cast<const Scalar*>(terms.terms[0])[index];
    for (int term = 1; term < terms.count; ++term) {
      sum += static_cast<const Scalar*>(terms.terms[term])[index];
    }
    result[index] = sum;
  }
}

// Puts such a sum on the stream.
using DeviceSum =
    std::function<device::CudaStatus(void* result, const DeviceTerms& terms, std::int64_t elements,
                                     ScalarType type, device::CudaStream stream)>;

// The kernel. Success and nothing put for no elements.
device::CudaStatus device_sum_in_order(void* result, const DeviceTerms& terms,
                                       std::int64_t elements, ScalarType type,
                                       device::CudaStream stream);

}  // namespace garonne::dist
