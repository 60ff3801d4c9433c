// Masters and states of the optimizer on a tier below the device, from where each update brings its
// own, and to where they go back: Rajbhandari, Ruwase, Rasley, Smith, He: ZeRO-Infinity (2021),
// section 5.2, for what a rank trains.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/offload/offload_search.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan {

// What lasts, is used by one update only, and so is idle for the rest of the step.
struct StateGroup {
  int update = -1;           // its place in the list
  int first = -1;            // that of what is first summed for it (SumTensors), or its own
  std::vector<int> buffers;  // of the device
  std::int64_t bytes = 0;
};

// Those of a Program, in the order of its updates, without buffers of less than `least_bytes`.
std::vector<StateGroup> state_groups(const Program& program, std::int64_t least_bytes);

// The Program with the groups on `tier` between its updates, where they last under the name
// "<name>@<tier>". Each comes when the device has room for it within `budget_bytes`, and no sooner
// than it takes to come in time, is updated, and goes back; all of them have gone back at the end.
// Nothing where one of them has no room, or the rest of the step. Peak and seconds are those of its
// replay; whether the tier has room is for the caller to say.
std::optional<Program> with_states_below(Program program, const std::vector<StateGroup>& groups,
                                         Tier tier, const TierLinks& links,
                                         std::int64_t budget_bytes);

}  // namespace garonne::plan
