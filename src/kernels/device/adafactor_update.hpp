// kernels/adafactor_update.hpp on a device.
#pragma once

#include "kernels/adafactor_update.hpp"
#include "kernels/device/place.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels::device {

// The same bits as on CPUs, by the same sums.
void adafactor_update(const Place& place, ElementType type, void* parameter, void* row_moments,
                      void* column_moments, const void* gradient, std::int64_t n,
                      const MatrixPart& part, const Adafactor& options,
                      const Scalar& gradient_scale, void* bfloat16_copy);

// Of the same slopes as on CPUs, in another order: a team adds up a row, or 32 columns, whose rows
// its groups have in turn. Uses the scratch of the place.
void add_adafactor_sums(const Place& place, ElementType type, const void* parameter,
                        const void* row_moments, const void* gradient, const MatrixPart& part,
                        const Adafactor& options, const Scalar& gradient_scale, double* sums);

// Of the same directions as on CPUs, in the order of add_lamb_squares. Uses the scratch of the
// place.
void add_adafactor_squares(const Place& place, ElementType type, const void* parameter,
                           const void* row_moments, const void* column_moments,
                           const void* gradient, const MatrixPart& part, const Adafactor& options,
                           const Scalar& gradient_scale, double* total);

}  // namespace garonne::kernels::device
