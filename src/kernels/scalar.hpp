// Numbers between nodes: losses, and what their gradients are multiplied with.
#pragma once

#include "base/device.hpp"

#include <cstdint>
#include <span>

namespace garonne::kernels {

// A number that a kernel is given by value, or reads where it is: in the memory of the queue's
// device.
struct Scalar {
  const double* place = nullptr;  // null: `value` is it
  double value = 0;
};

// mean = the sum of `numbers`, in their order, over how many they are.
void mean_of(const Queue& queue, std::span<const Scalar> numbers, double* mean);

// The chain rule through mean_of: gradient of one of `count` numbers = outer / count.
void mean_of_gradient(const Queue& queue, const Scalar& outer, std::int64_t count,
                      double* gradient);

}  // namespace garonne::kernels
