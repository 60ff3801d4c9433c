// A field on a coarser or finer grid, by its Fourier modes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "nn/node.hpp"

namespace garonne::nn {

// x [batch · points, channels] -> [batch · new points, channels]: the field of those modes of x
// that both grids tell apart, which along an axis are the frequencies below half of the smaller
// number of points. Going to fewer points drops the others, going to more pads them with zeros; a
// field that has no others is the same trigonometric polynomial on both grids.
// In float32 where the compute type is bfloat16.
std::unique_ptr<Node> make_spectral_resample(std::int64_t batch, std::vector<std::int64_t> points,
                                             std::vector<std::int64_t> new_points,
                                             std::int64_t channels);

}  // namespace garonne::nn
