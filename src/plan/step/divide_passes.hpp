// Divides every pass of a node that has a collective into what comes before it, the collective as
// an instruction of its own, and what makes the result of what came back. For the generator's own
// use.
#pragma once

#include "plan/model/model_graph.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan {

// `program` is finished, with its frees and its tiers' granularity; passes with a collective have
// its channel. Of a pass that is on another lane than Compute, and is waited for, only the
// collective goes there, and its last part comes behind the wait. What a pass frees it frees when
// it is over, so that it takes the bytes that its node declares and a solver counted. Throws
// InternalError where the node declares fewer bytes than the parts take.
void divide_passes(Program& program, const ModelGraph& graph);

}  // namespace garonne::plan
