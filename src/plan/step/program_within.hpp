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
  // Bytes that a few more reductions would take and the budget does not have; 0 where all that pay
  // are under way.
  std::int64_t wanted_bytes = 0;
};

// The fastest that fits, by replay of the rank alone; the leanest where none does. As
// make_training_program, of which it is a function for each number of bytes under way.
ProgramWithin make_program_within(const ModelGraph& graph, const StepShape& step,
                                  const StepSchedule& schedule, std::int64_t budget_bytes);

}  // namespace garonne::plan
