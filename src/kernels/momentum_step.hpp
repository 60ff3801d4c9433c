// The arithmetic of optimizers with one moment on one element; as adamw_step.hpp, it is compiled
// without contraction of products and sums. Private to this room.
#pragma once

#include "kernels/element.hpp"
#include "kernels/momentum_update.hpp"

namespace garonne::kernels {

// The factors of an update, rounded to T once.
template <typename T>
struct MomentumStep {
  GARONNE_INLINE MomentumStep(const Momentum& options, double learning_rate)
      : lion(options.rule == MomentumRule::Lion),
        decay(static_cast<T>(1.0 - learning_rate * options.weight_decay)),
        beta1(static_cast<T>(options.beta1)),
        rest1(static_cast<T>(1.0 - options.beta1)),
        beta2(static_cast<T>(options.beta2)),
        rest2(static_cast<T>(1.0 - options.beta2)),
        rate(static_cast<T>(learning_rate)),
        l2(static_cast<T>(options.l2)) {}

  GARONNE_INLINE void update(T gradient, T scale, T& parameter, T& moment) const {
    const T slope = gradient * scale + l2 * parameter;
    if (lion) {
      const T mixed = beta1 * moment + rest1 * slope;
      const T sign = static_cast<T>(mixed > 0) - static_cast<T>(mixed < 0);
      parameter = parameter * decay - rate * sign;
      moment = beta2 * moment + rest2 * slope;
    } else {
      moment = beta1 * moment + slope;
      parameter = parameter * decay - rate * moment;
    }
  }

  bool lion;
  T decay;
  T beta1;
  T rest1;
  T beta2;
  T rest2;
  T rate;
  T l2;
};

}  // namespace garonne::kernels
