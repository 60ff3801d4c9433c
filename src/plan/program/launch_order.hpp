// Whether Programs come to an end over NCCL, whose kernels on a device start in one order.
#pragma once

#include <vector>

#include "plan/program/program.hpp"

namespace garonne::plan {

// Kernels of NCCL start in the order in which the host puts them, whatever communicator they are
// of: one that stands behind another of its own stream, which waits for its peer, holds up all that
// is put after it. Messages have a stream for each lane of PipelinePlace, collectives one for each
// group. Throws ReplayError where ranks then wait for each other in a circle. `programs` are of
// ranks of one grid, in any number: whoever is not among them meets the others at once. Messages of
// a lane are in their order (check_lanes).
void check_launch_order(const std::vector<Program>& programs, int lane_numbers);

}  // namespace garonne::plan
