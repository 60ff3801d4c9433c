// What a model computes, whatever a plan runs again.
#pragma once

#include "plan/model/model_graph.hpp"

namespace garonne::train {

// Floating-point operations of one micro-batch, forward and backward once, of what one rank has of
// the model: the numerator of model FLOP/s utilisation (Chowdhery et al. 2022, PaLM, appendix B).
double declared_operations(const plan::ModelGraph& graph);

}  // namespace garonne::train
