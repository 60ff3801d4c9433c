// The Program of a step within a budget: what its schedule leaves of the bytes goes to reductions
// under way.
#pragma once

#include <cstdint>

#include "plan/program/replay.hpp"
#include "plan/step/generator.hpp"

namespace garonne::plan {

struct ProgramWithin {
  Program program;
  Prediction prediction;
  // The peak with one reduction under way; beyond the budget where nothing fits.
  std::int64_t least_bytes = 0;
  // Bytes that a few more reductions, or passes that overlap, would take and the budget does not
  // have; 0 where all that pay are under way.
  std::int64_t wanted_bytes = 0;
};

// A Program by itself, with its bytes and seconds.
struct ReplayedProgram {
  Program program;
  Prediction prediction;
};

// Of what make_training_program makes of a schedule with passes that overlap and with one after the
// other, which only some Programs can be, the one of the lower peak.
ReplayedProgram make_leaner_program(const ModelGraph& graph, const StepShape& step,
                                    const StepSchedule& schedule);

// The fastest that fits, by replay of the rank alone; the leanest where none does. Passes that can
// overlap (plan/step/passes_in_turn.hpp) do so where that fits, else run one after the other. As
// make_training_program, of which it is a function for each number of bytes under way.
ProgramWithin make_program_within(const ModelGraph& graph, const StepShape& step,
                                  const StepSchedule& schedule, std::int64_t budget_bytes);

}  // namespace garonne::plan
