// The micro-batches of a step in the order of the stage's pipeline schedule. For the generator's
// own use.
#pragma once

#include "plan/step/generator.hpp"
#include "plan/step/program_builder.hpp"

namespace garonne::plan {

// Forwards, backwards and messages of all micro-batches.
void write_step(ProgramBuilder& builder, const ModelGraph& graph, const StepShape& step,
                const StepSchedule& schedule);

// One micro-batch, forward; `output` is the caller's, -1 = this stage has none to give.
void write_forward(ProgramBuilder& builder, const ModelGraph& graph, const StepShape& step,
                   int output);

}  // namespace garonne::plan
