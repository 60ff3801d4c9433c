// One pass of an optimizer over its parameters.
#pragma once

#include "base/device.hpp"
#include "kernels/element_type.hpp"
#include "kernels/scalar.hpp"

#include <cstdint>

namespace garonne::kernels {

// What of AdamW depends on the step.
struct AdamWRates {
  double learning_rate = 0.0;
  double step_size = 0.0;  // learning_rate / bias_correction1
  double root = 0.0;       // 1 / sqrt(bias_correction2)
};

struct AdamW {
  double learning_rate = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.0;      // decoupled; 0 for what is not a matrix
  double bias_correction1 = 1.0;  // 1 - beta1^step
  double bias_correction2 = 1.0;  // 1 - beta2^step
  double l2 = 0.0;                // weight decay that goes through the moments instead
  bool pairs = false;             // elements 2 i and 2 i + 1 are one complex number
  // Where not null, what depends on the step is read there, in the memory of the queue's device,
  // and not above: for kernels that are recorded once and carried out in many steps.
  const AdamWRates* rates = nullptr;
};

// Of these numbers.
AdamWRates adamw_rates(const AdamW& options);

// With g = gradient * gradient_scale + l2 * p: p *= 1 - learning_rate * weight_decay; m = beta1 m +
// (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; p -= learning_rate / bias_correction1 * m /
// (sqrt(v) / sqrt(bias_correction2) + epsilon). With pairs, both numbers of a pair have v = beta2 v
// + (1 - beta2) |g|^2 of the complex number; n is even. Where gradient_scale is not finite nothing
// is changed. `type` is Float32 or Float64 (InternalError otherwise). bfloat16_copy, where not
// null, gets the new parameters rounded to nearest, ties to even.
void adamw_update(const Queue& queue, ElementType type,
                  void* parameter,       // type [n]
                  void* first_moment,    // type [n]
                  void* second_moment,   // type [n]
                  const void* gradient,  // type [n]
                  std::int64_t n, const AdamW& options, const Scalar& gradient_scale,
                  void* bfloat16_copy);  // bfloat16 [n] or null

}  // namespace garonne::kernels
