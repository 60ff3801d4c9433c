// The happens-before check: that no two accesses to a buffer of which one writes can meet, however
// late or early lanes come. Knows nothing of bytes, times and meanings, and shares nothing with
// replay or with what makes Programs.
//
// Instructions of a lane run one after the other, but for messages and collectives, of which
// several are under way and end as their partners come. One on another lane than Compute starts
// after everything that was issued to Compute before it (it forks) and after those in its `after`;
// Compute is sure that it has ended only behind a Wait for it (it joins). Clocks are vectors over
// lanes (Fidge 1988, Mattern 1989): how much of each lane has surely ended.
#pragma once

#include "plan/program/program.hpp"

namespace garonne::plan {

// Throws ReplayError for the later access of the first pair that may meet, for a Wait for what is
// not under way, and for what nobody waits for.
void check_order(const Program& program);

}  // namespace garonne::plan
