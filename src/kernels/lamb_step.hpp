// The arithmetic of LAMB on one element; as adamw_step.hpp, it is compiled without contraction of
// products and sums. Private to this room.
#pragma once

#include "kernels/element.hpp"
#include "kernels/lamb_update.hpp"

#include <cmath>

namespace garonne::kernels {

GARONNE_INLINE double trust_of(const Lamb& options) {
  if (options.squares == nullptr) return 1.0;
  const double parameter = std::sqrt(options.squares[0]);
  const double direction = std::sqrt(options.squares[1]);
  if (!(parameter > 0.0 && direction > 0.0)) return 1.0;
  const double trust = parameter / direction;
  return options.trust_limit > 0.0 && trust > options.trust_limit ? options.trust_limit : trust;
}

// The factors of an update, rounded to T once; `options` has the rates by value.
template <typename T>
struct LambStep {
  GARONNE_INLINE LambStep(const Lamb& options, const LambRates& rates, double trust)
      : decay(static_cast<T>(options.weight_decay)),
        beta1(static_cast<T>(options.beta1)),
        rest1(static_cast<T>(1.0 - options.beta1)),
        beta2(static_cast<T>(options.beta2)),
        rest2(static_cast<T>(1.0 - options.beta2)),
        rate(static_cast<T>(rates.learning_rate * trust)),
        correction(static_cast<T>(rates.correction)),
        root(static_cast<T>(rates.root)),
        epsilon(static_cast<T>(options.epsilon)),
        l2(static_cast<T>(options.l2)) {}

  // And makes the moments those of this step.
  GARONNE_INLINE T direction(T gradient, T scale, T parameter, T& first, T& second) const {
    const T slope = gradient * scale + l2 * parameter;
    first = beta1 * first + rest1 * slope;
    second = beta2 * second + rest2 * (slope * slope);
    return first * correction / (std::sqrt(second) * root + epsilon) + decay * parameter;
  }

  T decay;
  T beta1;
  T rest1;
  T beta2;
  T rest2;
  T rate;
  T correction;
  T root;
  T epsilon;
  T l2;
};

}  // namespace garonne::kernels
