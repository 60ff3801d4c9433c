// kernels/sphere_transform.hpp on a device: both sums as products, Fourier sums without a fast
// transform. Chunks of channels go one after the other through the CPU's workspace, of which the
// part for threads is not used. Table and factors are in the memory of the device.
#pragma once

#include "kernels/device/place.hpp"
#include "kernels/sphere_transform.hpp"

namespace garonne::kernels::device {

void sphere_analysis(const Place& place, const SphereArguments& arguments);

void sphere_synthesis(const Place& place, const SphereArguments& arguments);

}  // namespace garonne::kernels::device
