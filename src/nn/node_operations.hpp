// What nodes of several kinds share.
#pragma once

#include "kernels/scalar.hpp"
#include "nn/node.hpp"
#include "plan/model/model_graph.hpp"

namespace garonne::nn {

// Floating-point operations of a forward, which are the same whether it keeps a record or not, and
// of the backward.
inline void set_operations(plan::NodeSpec& spec, double forward, double backward) {
  spec.forward.floating_point_operations = spec.forward_keep.floating_point_operations = forward;
  spec.backward.floating_point_operations = backward;
}

// Of a matrix product [m, k] x [k, n].
inline double product_operations(std::int64_t m, std::int64_t n, std::int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

// Kernels that a GPU is given for the forward and for the backward, where they are not one each.
inline void set_kernels(plan::NodeSpec& spec, int forward, int backward) {
  spec.forward.kernels = spec.forward_keep.kernels = forward;
  spec.backward.kernels = backward;
}

// The gradient of a loss: what comes in, or the loss's scale where nothing comes after it.
inline kernels::Scalar outer_gradient(const BackwardArguments& arguments) {
  if (!arguments.output_gradient.defined()) return {nullptr, arguments.loss_scale};
  return kernels::Scalar{arguments.output_gradient.const_data_ptr<double>()};
}

}  // namespace garonne::nn
