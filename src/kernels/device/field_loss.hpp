// kernels/field_loss.hpp on a device: sums in float64 as Team::sum's, over slices of the points
// whose number depends on the shape alone. Fields have at most RunList::most runs of points and
// four axes of differences (InternalError otherwise); `scratch` of the comparison is not used.
// Tables (deviation, mean, row_weights) are in the memory of the device.
#pragma once

#include "kernels/device/place.hpp"
#include "kernels/field_loss.hpp"

namespace garonne::kernels::device {

void field_norms(const Place& place, const FieldComparison& fields, double* norms);

void field_norms_gradient(const Place& place, const FieldComparison& fields,
                          const double* gradient_errors, void* gradient_prediction);

void field_loss(const Place& place, const FieldComparison& fields, double* loss);

void field_loss_gradient(const Place& place, const FieldComparison& fields, const Scalar& outer,
                         void* gradient_prediction);

void gathered_field_loss(const Place& place, const GatheredNorms& gathered, double* loss);

void gathered_field_loss_gradient(const Place& place, const GatheredNorms& gathered,
                                  const Scalar& outer, double* gradient_norms);

}  // namespace garonne::kernels::device
