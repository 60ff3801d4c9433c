// The static tensors of a rank: parameters, masters and optimizer states.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/precision.hpp"
#include "nn/model.hpp"

namespace garonne::exec {

struct ParameterState {
  at::Tensor parameter;            // in the compute type, with the parameter's shape
  at::Tensor master;               // float32, same shape; undefined where the parameter is its own
  std::vector<at::Tensor> states;  // in the state type, same shape

  // What the optimizer updates.
  const at::Tensor& trained() const { return master.defined() ? master : parameter; }
};

struct ModelState {
  Precision precision = Precision::Float32;
  std::vector<ParameterState> parameters;  // by parameter index
};

// Step 0: parameters by (seed, name, element), states zero. Allocates from the calling thread's
// tier.
ModelState initial_state(const nn::Model& model, Precision precision, std::uint64_t seed,
                         int optimizer_states);

// Makes the compute copies again from the masters.
void refresh_compute_copies(ModelState& state);

}  // namespace garonne::exec
