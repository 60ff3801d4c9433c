// kernels/rms_norm.hpp on a device. Sums along a row are Team::sum's; those over rows begin as the
// CPU's, with its partitions and workspace.
#pragma once

#include "kernels/device/place.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels::device {

void rms_norm_forward(const Place& place, ElementType type, const void* x, const void* gain,
                      double epsilon, void* y, void* inverse, std::int64_t rows,
                      std::int64_t hidden);

// Three kernels: the sums of partitions, which read what the second may overwrite; gradient_x; and
// the partitions added up.
void rms_norm_backward(const Place& place, ElementType type, const void* gradient_y, const void* x,
                       const void* gain, const void* inverse, void* gradient_x, bool accumulate_x,
                       void* gradient_gain, bool accumulate_gain, void* workspace,
                       std::int64_t rows, std::int64_t hidden);

}  // namespace garonne::kernels::device
