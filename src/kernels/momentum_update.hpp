// One pass of an optimizer with one moment, SGD, LARS or Lion, over its parameters.
#pragma once

#include "base/device.hpp"
#include "kernels/element_type.hpp"
#include "kernels/scalar.hpp"

#include <cstdint>

namespace garonne::kernels {

enum class MomentumRule {
  Sgd,   // stochastic gradient descent with momentum (Sutskever et al., 2013)
  Lion,  // the sign of a moment (Chen et al., arXiv 2302.06675)
  Lars,  // SGD whose rate is of each parameter (You, Gitman and Ginsburg, arXiv 1708.03888)
};

struct Momentum {
  MomentumRule rule = MomentumRule::Sgd;
  double beta1 = 0.9;
  double beta2 = 0.99;        // of Lion
  double weight_decay = 0.0;  // decoupled; 0 for what is not a matrix
  double l2 = 0.0;            // weight decay that goes through the moment instead
  // Of Lars: [2], in the memory of the queue's device, the squares of all elements of the parameter
  // that these are a part of, and of its gradient before gradient_scale; null: trust = 1.
  const double* squares = nullptr;
  double trust_coefficient = 1e-3;
  double trust_limit = 0.0;  // the largest trust; 0 = none
  double epsilon = 0.0;
};

// With g = gradient * gradient_scale + l2 * p: p *= 1 - learning_rate * weight_decay. Then SGD: m =
// beta1 m + g; p -= learning_rate * m. Lion: p -= learning_rate * sign(beta1 m + (1 - beta1) g); m
// = beta2 m + (1 - beta2) g; the sign of 0 is 0. Lars, of norms of the whole parameter: trust =
// trust_coefficient * |p| / (|gradient| * gradient_scale + l2 * |p| + epsilon), 1 where one of the
// norms is 0; m = beta1 m + learning_rate * trust * g; p -= m. Where gradient_scale is not finite
// nothing is changed. `type` is Float32 or Float64 (InternalError otherwise). bfloat16_copy, where
// not null, gets the new parameters rounded to nearest, ties to even.
void momentum_update(const Queue& queue, ElementType type,
                     void* parameter,       // type [n]
                     void* moment,          // type [n]
                     const void* gradient,  // type [n]
                     std::int64_t n, const Momentum& options, const Scalar& learning_rate,
                     const Scalar& gradient_scale,
                     void* bfloat16_copy);  // bfloat16 [n] or null

}  // namespace garonne::kernels
