// What a model computes, and what a plan runs again.
#pragma once

#include "plan/model/model_graph.hpp"
#include "plan/program/program.hpp"

namespace garonne::train {

// Floating-point operations of one micro-batch, forward and backward once, of what one rank has of
// the model, without the scores that attention's backward makes again: the numerator of model
// FLOP/s utilisation (Chowdhery et al. 2022, PaLM, appendix B).
double declared_operations(const plan::ModelGraph& graph);

// Of the forwards that a Program runs again and the scores that its backwards do, by the names of
// the nodes in `graph`. What runs on another part of a divided node counts as the node of `graph`
// declares it.
double repeated_operations(const plan::ModelGraph& graph, const plan::Program& program);

}  // namespace garonne::train
