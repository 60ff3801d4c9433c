// Whether a generator's Program computes what its model means, by following what every buffer
// holds.
#pragma once

#include "plan/step/generator.hpp"

namespace garonne::plan::test {

// Peak by adding up all live buffers anew at every instruction.
std::int64_t slow_peak(const Program& program);

// Parameters, masters and optimizer states of a rank that holds them whole.
std::int64_t static_bytes_by_formula(const ModelGraph& graph, const StepShape& step);

// Expects that every node is handed what its mathematics needs and that sums have their order.
void check_meaning(const ModelGraph& graph, const Program& program);

// Makes the Program of the schedule for `step`'s micro-batches and expects of it: legal, the right
// meaning, buckets and reductions whole, and all bytes as the slow sums of live buffers say.
void check_program(const ModelGraph& graph, const StepShape& step, const NodeSchedule& schedule);

}  // namespace garonne::plan::test
