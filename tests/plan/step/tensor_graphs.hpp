// Models of a tensor rank for the tests of the planner.
#pragma once

#include "plan/step/graphs.hpp"

namespace garonne::plan::test {

// The model with nodes behind some of its own whose passes have collectives: sums in place and in
// wider copies, gathers in place and apart, pieces of sums; some declare more bytes than they take.
ModelGraph with_collectives(const ModelGraph& graph, unsigned seed);

// Blocks of which each enters what is cut over the tensor ranks and leaves it again, as those of a
// transformer: all tensor ranks have the values between blocks and the same gradients of them.
ModelGraph cut_blocks(int blocks, std::int64_t elements);

// Two tensor ranks.
StepShape tensor_step_shape(int micro_batches, int data_ranks, std::int64_t bucket_bytes);

}  // namespace garonne::plan::test
