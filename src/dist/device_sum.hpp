// Sums in a fixed order of the terms, on a CUDA device. For the room's own use.
#pragma once

#include <cstdint>
#include <functional>

#include "device/cuda_runtime.hpp"
#include "dist/bfloat16.hpp"
#include "dist/transport.hpp"

namespace garonne::dist {

// Most terms that one call adds.
inline constexpr int most_device_terms = 64;

// Addresses on the device, in the order of the sum; `count` of them, at least one.
struct DeviceTerms {
  const void* terms[most_device_terms] = {};
  int count = 0;
  // Of terms in BFloat16: the one that is in Float32, and is rounded as it is read; -1 = none.
  int wide = -1;
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

GARONNE_ON_DEVICE inline float narrow_term(const DeviceTerms& terms, int term, std::int64_t index) {
  if (term == terms.wide)
    return widened(narrowed(static_cast<const float*>(terms.terms[term])[index]));
  return widened(static_cast<const BFloat16*>(terms.terms[term])[index]);
}

GARONNE_ON_DEVICE inline void store_sum(float& place, float sum) {
  place = sum;
}
GARONNE_ON_DEVICE inline void store_sum(BFloat16& place, float sum) {
  place = narrowed(sum);
}

// The same of terms in BFloat16, added in Float32 and rounded to the result's type.
template <typename Result>
GARONNE_ON_DEVICE void add_narrow_terms(Result* result, const DeviceTerms& terms,
                                        std::int64_t elements, std::int64_t worker,
                                        std::int64_t workers) {
  for (std::int64_t index = worker; index < elements; index += workers) {
    float sum = narrow_term(terms, 0, index);
    for (int term = 1; term < terms.count; ++term) sum += narrow_term(terms, term, index);
    store_sum(result[index], sum);
  }
}

// By type: `kept` is that of the result, `wire` that of the terms. Of one term it converts.
GARONNE_ON_DEVICE inline void add_terms(void* result, const DeviceTerms& terms,
                                        std::int64_t elements, SumType type, std::int64_t worker,
                                        std::int64_t workers) {
  if (type.wire == ScalarType::BFloat16) {
    if (type.kept == ScalarType::BFloat16) {
      add_narrow_terms(static_cast<BFloat16*>(result), terms, elements, worker, workers);
    } else {
      add_narrow_terms(static_cast<float*>(result), terms, elements, worker, workers);
    }
  } else if (type.kept == ScalarType::Float32) {
    add_device_terms(static_cast<float*>(result), terms, elements, worker, workers);
  } else {
    add_device_terms(static_cast<double*>(result), terms, elements, worker, workers);
  }
}

// Puts such a sum on the stream.
using DeviceSum =
    std::function<device::CudaStatus(void* result, const DeviceTerms& terms, std::int64_t elements,
                                     SumType type, device::CudaStream stream)>;

// The kernel. Success and nothing put for no elements.
device::CudaStatus device_sum_in_order(void* result, const DeviceTerms& terms,
                                       std::int64_t elements, SumType type,
                                       device::CudaStream stream);

}  // namespace garonne::dist
