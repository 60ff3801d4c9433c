// The arithmetic of AdamW on one element, for the loops of CPUs and for the kernel of devices;
// private to this room. What includes it is compiled without contraction of products and sums, so
// that an update has the same bits on every processor and device.
#pragma once

#include "kernels/element.hpp"
#include "kernels/optimizer_update.hpp"

#include <cmath>

namespace garonne::kernels {

// The factors of an update, rounded to T once.
template <typename T>
struct AdamWStep {
  GARONNE_INLINE AdamWStep(const AdamW& options, const AdamWRates& rates)
      : decay(static_cast<T>(1.0 - rates.learning_rate * options.weight_decay)),
        beta1(static_cast<T>(options.beta1)),
        rest1(static_cast<T>(1.0 - options.beta1)),
        beta2(static_cast<T>(options.beta2)),
        rest2(static_cast<T>(1.0 - options.beta2)),
        step(static_cast<T>(rates.step_size)),
        root(static_cast<T>(rates.root)),
        epsilon(static_cast<T>(options.epsilon)),
        l2(static_cast<T>(options.l2)) {}

  GARONNE_INLINE T slope(T gradient, T scale, T parameter) const {
    return gradient * scale + l2 * parameter;
  }

  // `square` is that of the slope, or of the complex number that it is a part of.
  GARONNE_INLINE void update(T slope, T square, T& parameter, T& first, T& second) const {
    const T m = beta1 * first + rest1 * slope;
    const T v = beta2 * second + rest2 * square;
    parameter = parameter * decay - step * m / (std::sqrt(v) * root + epsilon);
    first = m;
    second = v;
  }

  T decay;
  T beta1;
  T rest1;
  T beta2;
  T rest2;
  T step;
  T root;
  T epsilon;
  T l2;
};

}  // namespace garonne::kernels
