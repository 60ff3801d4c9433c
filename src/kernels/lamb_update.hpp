// One pass of LAMB over its parameters, and the sum that has to be there before.
#pragma once

#include "base/device.hpp"
#include "kernels/element_type.hpp"
#include "kernels/scalar.hpp"

#include <cstdint>

namespace garonne::kernels {

// What of LAMB depends on the step.
struct LambRates {
  double learning_rate = 0.0;
  double correction = 1.0;  // 1 / (1 - beta1^step)
  double root = 1.0;        // 1 / sqrt(1 - beta2^step)
};

struct Lamb {
  LambRates rates;
  // Where not null, they are read there, in the memory of the queue's device: for kernels that are
  // recorded once and carried out in many steps.
  const LambRates* rates_place = nullptr;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0.0;  // in the direction; 0 for what is not a matrix
  double l2 = 0.0;            // weight decay that goes through the moments instead
  double trust_limit = 0.0;   // the largest trust; 0 = none
  // [2], in the memory of the queue's device: the squares of all elements of the parameter that
  // these are a part of, and of its direction (add_lamb_squares); null: trust = 1.
  const double* squares = nullptr;
};

// You et al., arXiv 1904.00962. With g = gradient * gradient_scale + l2 * p: m = beta1 m + (1 -
// beta1) g; v = beta2 v + (1 - beta2) g^2; direction u = m * correction / (sqrt(v) * root +
// epsilon) + weight_decay * p; p -= learning_rate * trust * u, where trust = |p| / |u| of the whole
// parameter, 1 where one of the norms is 0. Where gradient_scale is not finite nothing is changed.
// `type` is Float32 or Float64 (InternalError otherwise). bfloat16_copy, where not null, gets the
// new parameters rounded to nearest, ties to even.
void lamb_update(const Queue& queue, ElementType type,
                 void* parameter,       // type [n]
                 void* first_moment,    // type [n]
                 void* second_moment,   // type [n]
                 const void* gradient,  // type [n]
                 std::int64_t n, const Lamb& options, const Scalar& gradient_scale,
                 void* bfloat16_copy);  // bfloat16 [n] or null

// total += u^2 of what lamb_update would make of the same, in double and in an order that depends
// on n only. Changes nothing else; adds nothing where gradient_scale is not finite.
void add_lamb_squares(const Queue& queue, ElementType type,
                      const void* parameter,      // type [n]
                      const void* first_moment,   // type [n]
                      const void* second_moment,  // type [n]
                      const void* gradient,       // type [n]
                      std::int64_t n, const Lamb& options, const Scalar& gradient_scale,
                      double* total);

}  // namespace garonne::kernels
