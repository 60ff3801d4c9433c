// A simulated pipeline as lanes of characters, one a device.
#pragma once

#include <string>

#include "plan/pipeline/schedule.hpp"
#include "plan/pipeline/simulation.hpp"

namespace garonne::plan {

// Lanes and a ruler in seconds, at most `columns` characters wide (at least 40), and a legend. A
// character is an equal share of the makespan and shows what fills most of it. `colour` adds the
// escape sequences of terminals. Of more than 64 devices the first and the last 32 are shown.
std::string timeline_text(const PipelineSchedule& schedule, const PipelineOutcome& outcome,
                          int columns, bool colour);

// The smallest of 1, 2 and 5 times a power of ten that is at least that: the distance of the marks
// on an axis.
double round_step(double least);

}  // namespace garonne::plan
