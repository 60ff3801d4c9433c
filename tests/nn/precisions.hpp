// The precisions that nodes have.
#pragma once

#include "base/precision.hpp"

namespace garonne::nn {

inline constexpr Precision precisions[] = {Precision::Float32, Precision::Float64,
                                           Precision::BFloat16};

}  // namespace garonne::nn
