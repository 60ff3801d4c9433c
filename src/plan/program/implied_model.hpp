// The model that a Program is a step of, as far as the Program itself tells.
#pragma once

#include "plan/model/model_graph.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan {

// Each node as its first forward and its first backward have it: what it reads by what was made
// there, what it pins, whose gradients it makes. Held against this by check_against_model and
// check_contents, every other micro-batch, every recomputation and every backward must go the same
// way. Names and numbers of values are its own but for those that the Program has. Throws
// ReplayError for what can be of no model. The Program must have been accepted by replay.
ModelGraph implied_model(const Program& program);

}  // namespace garonne::plan
