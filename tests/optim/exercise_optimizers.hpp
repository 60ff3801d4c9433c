// The registry with optimizers whose states are no tensor of the parameter's shape: one file and
// one line each.
#pragma once

#include <memory>
#include <vector>

#include "optim/optimizer.hpp"

namespace garonne::optim {

// Calls `run` with a number of the type in which the parameter is, then refreshes its copy.
template <typename Run>
void update_as(const ParameterUpdate& update, const Run& run) {
  if (update.parameter.scalar_type() == at::kDouble) {
    run(double{});
  } else {
    run(float{});
  }
  if (update.compute_copy.defined()) update.compute_copy.copy_(update.parameter);
}

std::unique_ptr<Optimizer> make_eight_bit(const RunConfig& config);
std::unique_ptr<Optimizer> make_factored(const RunConfig& config);

inline std::vector<OptimizerKind> exercise_kinds() {
  std::vector<OptimizerKind> kinds = optimizer_kinds();
  kinds.push_back({"eight-bit", make_eight_bit});
  kinds.push_back({"factored", make_factored});
  return kinds;
}

}  // namespace garonne::optim
