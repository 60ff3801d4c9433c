// Whether passes of a stage can overlap, and steps in which none does.
#pragma once

#include <cstdint>

#include "plan/step/generator.hpp"

namespace garonne::plan {

// Two passes that the schedule lets overlap, of which one meets the tensor group, are written by
// turns: one computes while the other communicates. Why not:
enum class PassesInTurn {
  No,                 // they are
  NoTensorRanks,      // nobody communicates
  GathersParameters,  // with ZeRO 3 they would be gathered again at each turn
  DeviceWaits,        // it computes nothing while tensor ranks communicate
};
PassesInTurn why_in_turn(std::int64_t tensor_ranks, std::int64_t data_ranks, int zero,
                         bool device_waits);
PassesInTurn why_in_turn(const StepShape& step);

// Whether some of the stage's order do.
bool passes_can_overlap(const StepShape& step);

// The same step with one pass after the other.
StepShape with_passes_in_turn(StepShape step);

}  // namespace garonne::plan
