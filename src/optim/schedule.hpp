// Learning rate by step: linear warm-up, then a cosine to the minimum.
#pragma once

#include <cstdint>

#include "base/config.hpp"

namespace garonne::optim {

// Of step `step` (from 1) of `train.steps`; a function of the configuration and the step alone.
double learning_rate_at(const RunConfig& config, std::int64_t step);

}  // namespace garonne::optim
