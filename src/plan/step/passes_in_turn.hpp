// Whether passes of a stage can overlap, and steps in which none does.
#pragma once

#include "plan/step/generator.hpp"

namespace garonne::plan {

// Two passes that the schedule lets overlap, of which one meets the tensor group, are written by
// turns: one computes while the other communicates. Not with ZeRO 3, where parameters would be
// gathered again at each turn.
bool passes_can_overlap(const StepShape& step);

// The same step with one pass after the other.
StepShape with_passes_in_turn(StepShape step);

}  // namespace garonne::plan
