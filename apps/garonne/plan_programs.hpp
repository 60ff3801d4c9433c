// The Programs of a planned grid as files.
#pragma once

#include <string>

#include "train/plans/grid_plan.hpp"

namespace garonne::apps {

// One file for the ranks of a stage, which run one Program, under the first of them; throws
// ReplayError where Programs do not meet, IoError for what cannot be written.
void write_programs(const train::GridPlan& plan, const std::string& folder);

}  // namespace garonne::apps
