// The registry with optimizers whose states are no tensor of the parameter's shape: one file and
// one line each.
#pragma once

#include <memory>
#include <vector>

#include "optim/optimizer.hpp"

namespace garonne::optim {

std::unique_ptr<Optimizer> make_eight_bit(const RunConfig& config);
std::unique_ptr<Optimizer> make_factored(const RunConfig& config);

inline std::vector<OptimizerKind> exercise_kinds() {
  std::vector<OptimizerKind> kinds = optimizer_kinds();
  kinds.push_back({"eight-bit", make_eight_bit});
  kinds.push_back({"factored", make_factored});
  return kinds;
}

}  // namespace garonne::optim
