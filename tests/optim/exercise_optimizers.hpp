// The registry with optimizers whose states are no tensor of the parameter's shape: one file and
// one line each.
#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include "optim/optimizer.hpp"

namespace garonne::optim {

// Calls `run` with a number of the type in which the parameter is and the scale, then refreshes its
// copy; not where the scale is no number: such steps are left out. On the host.
template <typename Run>
void update_as(const ParameterUpdate& update, const kernels::Scalar& gradient_scale,
               const Run& run) {
  const double scale =
      gradient_scale.place == nullptr ? gradient_scale.value : *gradient_scale.place;
  if (!std::isfinite(scale)) return;
  if (update.parameter.scalar_type() == at::kDouble) {
    run(double{}, scale);
  } else {
    run(float{}, scale);
  }
  if (update.compute_copy.defined()) update.compute_copy.copy_(update.parameter);
}

std::unique_ptr<Optimizer> make_eight_bit(const RunConfig& config);
std::unique_ptr<Optimizer> make_factored(const RunConfig& config);

inline std::vector<OptimizerKind> exercise_kinds() {
  std::vector<OptimizerKind> kinds = optimizer_kinds();
  kinds.push_back({"eight-bit", make_eight_bit, {"optimizer.beta1", "optimizer.beta2"}});
  kinds.push_back({"factored", make_factored, {"optimizer.beta2"}});
  return kinds;
}

}  // namespace garonne::optim
