// Instance norm as a node.
#pragma once

#include <cstdint>
#include <memory>

#include "nn/node.hpp"

namespace garonne::nn {

// x [batch · points, channels], gain [channels], bias [channels] -> the same shape: each channel of
// a sample to mean 0 and deviation 1 over its points. Statistics in float32 or better.
std::unique_ptr<Node> make_instance_norm(std::int64_t batch, std::int64_t points,
                                         std::int64_t channels, double epsilon);

}  // namespace garonne::nn
