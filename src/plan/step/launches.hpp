// What kernels cost that belong to no node: sums, the norm, updates, parts of divided passes.
#pragma once

#include <cstddef>

#include "plan/model/model_graph.hpp"
#include "plan/program/program.hpp"
#include "plan/step/generator.hpp"

namespace garonne::plan {

// Of a pass that is divided at its collective: how many the node puts before that and behind it.
struct PartKernels {
  int before = 0;
  int after = 0;
};
PartKernels kernels_of_parts(const NodeSpec& node, bool forward);

// What the host issues for a collective on its lane; `converts`: its numbers travel narrower than
// they are kept.
int launches_of_collective(Operation operation, bool converts);

// Of a node that meets the tensor group in one of its passes: the kernels of `forward` or backward
// that compute, where no row has their seconds, and all launches of it.
int kernels_beside_meeting(const NodeSpec& node, bool forward);
int launches_of_meeting(const NodeSpec& node, bool forward);

// Of a parameter, or of the part of one that a rank has: what the optimizer puts on a device for
// one round of its sums, and for its update. Of several dimensions: `matrix`.
int launches_of_sums(const StepShape& step, std::size_t round, bool matrix);
int launches_of_update(const StepShape& step);
// Both, all rounds together.
int launches_of_training(const StepShape& step, bool matrix);

// Gives every instruction the issue seconds of its kernels, and on Compute their least seconds; but
// what has issue seconds of its node keeps them, and passes that meet nobody are as their node
// says. Where the processor that computes communicates, what that takes of it is of the waits for
// what is communicated beside it: time that is not lost where the link takes longer. Nothing where
// all are 0.
void add_launches(Program& program, const ModelGraph& graph, const StepShape& step);

}  // namespace garonne::plan
