// kernels/scalar.hpp on a device; the same bits as on CPUs.
#pragma once

#include "kernels/device/place.hpp"
#include "kernels/scalar.hpp"

#include <cstdint>
#include <span>

namespace garonne::kernels::device {

// Uses the scratch of the place where there are many numbers.
void mean_of(const Place& place, std::span<const Scalar> numbers, double* mean);

void mean_of_gradient(const Place& place, const Scalar& outer, std::int64_t count,
                      double* gradient);

void add_scaled(const Place& place, const Scalar& number, double factor, double* sum);

void clip_scale(const Place& place, const double* loss, const double* squares, double clip_norm,
                double* norm, double* scale);

}  // namespace garonne::kernels::device
