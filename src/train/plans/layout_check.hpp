// Grids that a run file asks for and that cannot work, before anything is made of them.
#pragma once

#include "train/setup/planning.hpp"

namespace garonne::train {

// More parts of a pipeline than the model has blocks: throws ConfigError (grid.pipeline,
// grid.chunks) with the nearest that work.
void check_parts(const Setup& whole);

// ZeRO where no data ranks share: throws ConfigError (grid.zero).
void check_zero(const RunConfig& config);

}  // namespace garonne::train
