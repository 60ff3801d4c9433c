// The stages of a grid in replay together, with the disks that ranks of their nodes share.
#pragma once

#include <vector>

#include "plan/program/replay.hpp"
#include "train/setup/planning.hpp"

namespace garonne::train {

// `programs[s]`: of the first rank of stage s of `whole`, as if the other ranks of the stage kept
// step with it. Nodes have `whole.ranks_on_node` ranks each, in their order.
std::vector<plan::Prediction> replay_stages(const Setup& whole, std::vector<plan::Program> programs,
                                            const plan::Overlap& overlap);

}  // namespace garonne::train
