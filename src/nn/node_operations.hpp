// What the passes of a node compute, for its declaration.
#pragma once

#include "plan/model_graph.hpp"

namespace garonne::nn {

// Floating-point operations of a forward, which are the same whether it keeps a record or not, and
// of the backward.
inline void set_operations(plan::NodeSpec& spec, double forward, double backward) {
  spec.forward.floating_point_operations = spec.forward_keep.floating_point_operations = forward;
  spec.backward.floating_point_operations = backward;
}

}  // namespace garonne::nn
