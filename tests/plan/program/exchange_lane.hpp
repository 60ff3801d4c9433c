// A lane as an exercise: exchanges of tensor ranks beside those of gradients, which have the lane
// of collectives. What is linked with exchange_lane.cpp has this lane; it is known nowhere else.
#pragma once

#include "base/lane.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan::test {

// The one behind those that are built in.
inline constexpr Lane exchange_lane = static_cast<Lane>(lane_count);

// Collectives of passes on the lane, each with a wait before its pass is finished.
Program with_exchange_lane(Program program);

// Where a gradient is summed over one group and then over another, the later sum is on the lane and
// follows the earlier one by `after`, where it was behind a wait for it: Compute waits for both
// once the later one has to be there. Compute and what else runs beside it stay as they were.
Program with_sums_in_a_row(Program program);

}  // namespace garonne::plan::test
