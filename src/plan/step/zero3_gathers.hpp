// When the flat parameters of ZeRO 3 are whole: around their uses, with the all-gathers ahead.
#pragma once

#include "plan/program/program.hpp"
#include "plan/step/generator.hpp"

namespace garonne::plan {

// Takes a Program whose nodes read the flat range of a bucket as if it were always there, and
// puts in an all-gather and a wait for each run of uses that no other bucket's use interrupts; each
// run gets a buffer of its own. `step.gathers_ahead` runs are gathered before their turn.
void place_gathers(Program& program, const StepShape& step);

}  // namespace garonne::plan
