// Sums in a fixed order of the terms, on a CUDA device. For the room's own use.
#pragma once

#include <cstdint>

#include "dist/transport.hpp"

namespace garonne::dist {

// Most terms that one call adds.
inline constexpr int most_device_terms = 16;

// Addresses on the device, in the order of the sum; `count` of them.
struct DeviceTerms {
  const void* terms[most_device_terms] = {};
  int count = 0;
};

// Puts result[elements] = (terms[0] + terms[1]) + ... on the stream (a cudaStream_t). One of the
// terms may be `result` itself. Returns a cudaError_t: 0 when all is well.
int device_sum_in_order(void* result, const DeviceTerms& terms, std::int64_t elements,
                        ScalarType type, void* stream);

}  // namespace garonne::dist
