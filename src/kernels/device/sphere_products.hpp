// kernels/sphere_products.hpp on a device; factors are in its memory.
#pragma once

#include "kernels/device/place.hpp"
#include "kernels/sphere_products.hpp"

namespace garonne::kernels::device {

void sphere_fold(const Place& place, const SphereColumns& columns, const void* grid, void* folded);
void sphere_unfold(const Place& place, const SphereColumns& columns, const void* folded,
                   void* grid);
void sphere_coefficients(const Place& place, const SphereColumns& columns, const void* series,
                         void* coefficients);
void sphere_series(const Place& place, const SphereColumns& columns, const void* coefficients,
                   void* series);

}  // namespace garonne::kernels::device
