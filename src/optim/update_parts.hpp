// What the optimizers take out of an update for their kernels.
#pragma once

#include "kernels/element_type.hpp"
#include "kernels/scalar.hpp"
#include "optim/optimizer.hpp"

namespace garonne::optim {

// Parameters, gradients and states of updates are float32 or float64.
inline kernels::ElementType update_type(const at::Tensor& values) {
  return values.scalar_type() == at::kDouble ? kernels::ElementType::Float64
                                             : kernels::ElementType::Float32;
}

// By which rates are adapted to whole matrices; no place where they are not.
inline kernels::Scalar adapting_sums(const ParameterUpdate& update) {
  if (!update.matrix || update.sums.empty()) return {};
  return kernels::Scalar{.place = update.sums[0].const_data_ptr<double>()};
}

}  // namespace garonne::optim
