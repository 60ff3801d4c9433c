// Learning rate by step: linear warm-up, then a cosine to the minimum.
#pragma once

#include <cstdint>

#include "base/config.hpp"

namespace garonne::optim {

// Of step `step` (from 1) of `train.steps`; a function of the configuration and the step alone.
double learning_rate_at(const RunConfig& config, std::int64_t step);

// What the gradient is multiplied by so that its global norm is at most `clip_norm`; 1 when that is
// 0.
double clip_scale(double gradient_norm, double clip_norm);

}  // namespace garonne::optim
