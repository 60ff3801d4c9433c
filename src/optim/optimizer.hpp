// Optimizers: what they keep for each parameter and how they update it. One file and one registry
// line each.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/device.hpp"

namespace garonne::optim {

// One parameter as an update sees it; all flat views of n elements in the state type, but
// `compute_copy`.
struct ParameterUpdate {
  at::Tensor parameter;            // the master where there is one
  std::vector<at::Tensor> states;  // in the order of state_names()
  at::Tensor gradient;             // read only
  at::Tensor compute_copy;         // bfloat16, undefined where the parameter is its own master
  bool decays = false;
  bool complex = false;  // pairs of elements are complex numbers; n is even
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual std::vector<std::string> state_names() const = 0;
  // `step` counts from 1; the gradient is multiplied by `gradient_scale` (clipping) on the fly.
  virtual void update(const Queue& queue, const ParameterUpdate& update, std::int64_t step,
                      double learning_rate, double gradient_scale) const = 0;
};

// By optimizer.name; throws ConfigError for an unknown one.
std::unique_ptr<Optimizer> make_optimizer(const RunConfig& config);

std::unique_ptr<Optimizer> make_adamw(const RunConfig& config);

}  // namespace garonne::optim
