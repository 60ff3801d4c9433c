// Instance norm of a field that is cut over a tensor group, in parts: each member's moments, which
// are gathered (nn/spectral/spectrum_collectives.hpp, so that their gradients are summed), then the
// norm. nn/layers/instance_norm.hpp is all of it in one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "nn/fields/field_rows.hpp"
#include "nn/node.hpp"

namespace garonne::nn {

// x [batch · slots · points in a row, channels] -> float64 [2, batch, channels]: means over the
// points of the rows that are there, and sums of the squares of what is beside them.
std::unique_ptr<Node> make_instance_moments(const FieldRows& rows, std::int64_t points_in_row,
                                            std::int64_t batch, std::int64_t channels);

// x [batch · points, channels], the moments of all members [members, 2, batch, channels], gain
// [channels], bias [channels] -> x with each channel of a sample at mean 0 and deviation 1 over the
// points of all members. `counted`: how many points each has moments of.
std::unique_ptr<Node> make_instance_norm_of_moments(std::vector<std::int64_t> counted,
                                                    std::int64_t points, std::int64_t batch,
                                                    std::int64_t channels, double epsilon);

}  // namespace garonne::nn
