// Single numbers: losses, what their gradients are multiplied with, and the sums over a step.
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

// sum += number * factor.
void add_scaled(const Queue& queue, const Scalar& number, double factor, double* sum);

// What follows from the sums over a step: norm = sqrt(squares) of all gradients, and scale, which
// they are multiplied with so that their norm is at most `clip_norm` (1 when that is 0). Where the
// loss or the norm is not finite the scale is NaN, with which nothing is updated.
void clip_scale(const Queue& queue, const double* loss, const double* squares, double clip_norm,
                double* norm, double* scale);

}  // namespace garonne::kernels
