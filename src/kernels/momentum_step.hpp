// The arithmetic of optimizers with one moment on one element; as adamw_step.hpp, it is compiled
// without contraction of products and sums. Private to this room.
#pragma once

#include "kernels/element.hpp"
#include "kernels/momentum_update.hpp"

#include <cmath>

namespace garonne::kernels {

// What the learning rate of Lars is multiplied with.
GARONNE_INLINE double trust_of(const Momentum& options, double gradient_scale) {
  if (options.squares == nullptr) return 1.0;
  const double parameter = std::sqrt(options.squares[0]);
  const double gradient = std::sqrt(options.squares[1]) * gradient_scale;
  if (!(parameter > 0.0 && gradient > 0.0)) return 1.0;
  const double trust =
      options.trust_coefficient * parameter / (gradient + options.l2 * parameter + options.epsilon);
  return options.trust_limit > 0.0 && trust > options.trust_limit ? options.trust_limit : trust;
}

// The factors of an update, rounded to T once.
template <typename T>
struct MomentumStep {
  GARONNE_INLINE MomentumStep(const Momentum& options, double learning_rate, double gradient_scale)
      : lion(options.rule == MomentumRule::Lion),
        lars(options.rule == MomentumRule::Lars),
        decay(static_cast<T>(1.0 - learning_rate * options.weight_decay)),
        beta1(static_cast<T>(options.beta1)),
        rest1(static_cast<T>(1.0 - options.beta1)),
        beta2(static_cast<T>(options.beta2)),
        rest2(static_cast<T>(1.0 - options.beta2)),
        rate(static_cast<T>(options.rule == MomentumRule::Lars
                                ? learning_rate * trust_of(options, gradient_scale)
                                : learning_rate)),
        l2(static_cast<T>(options.l2)) {}

  GARONNE_INLINE void update(T gradient, T scale, T& parameter, T& moment) const {
    const T slope = gradient * scale + l2 * parameter;
    if (lion) {
      const T mixed = beta1 * moment + rest1 * slope;
      const T sign = static_cast<T>(mixed > 0) - static_cast<T>(mixed < 0);
      parameter = parameter * decay - rate * sign;
      moment = beta2 * moment + rest2 * slope;
    } else if (lars) {
      moment = beta1 * moment + rate * slope;
      parameter = parameter * decay - moment;
    } else {
      moment = beta1 * moment + slope;
      parameter = parameter * decay - rate * moment;
    }
  }

  bool lion;
  bool lars;
  T decay;
  T beta1;
  T rest1;
  T beta2;
  T rest2;
  T rate;
  T l2;
};

}  // namespace garonne::kernels
