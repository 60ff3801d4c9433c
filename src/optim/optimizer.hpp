// Optimizers: what they keep for each parameter and how they update it. A new one is one file and
// one line of the registry (optimizer.cpp).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/device.hpp"
#include "base/state_spec.hpp"
#include "kernels/matrix_part.hpp"
#include "kernels/scalar.hpp"

namespace garonne::optim {

// What a rank trains of one parameter as an update sees it; all flat views of n elements in the
// type of gradients, but `states` and `compute_copy`. It starts where a block of every state does.
struct ParameterUpdate {
  at::Tensor parameter;            // the master where there is one
  std::vector<at::Tensor> states;  // by states(): each of as many numbers as its blocks count
  at::Tensor gradient;             // read only
  at::Tensor compute_copy;         // bfloat16, undefined where the parameter is its own master
  bool decays = false;
  std::optional<double> weight_decay = {};  // of its own, in place of the run's; where it decays
  bool complex = false;                     // pairs of elements are complex numbers; n is even
  bool matrix = false;  // of two or more dimensions: what adapts rates by norms adapts its
  kernels::MatrixPart part = {};  // of the whole parameter: what these elements are
  // Of all of the parameter, whoever has parts of it: by round of Optimizer::sums() its numbers, in
  // float64. add_sums() has those of the rounds before its own, and its own.
  std::vector<at::Tensor> sums;
  // What rates() gives for the step, in the memory of the queue's device; null: step and learning
  // rate are taken as they are given.
  const double* rates = nullptr;
};

// Of an update, where it decays; `of_run` is optimizer.weight_decay.
double weight_decay_of(const ParameterUpdate& update, double of_run);

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // At step 0 all numbers of all states are 0.
  virtual std::vector<StateSpec> states() const = 0;
  // `step` counts from 1; the gradient is multiplied by `gradient_scale` (clipping) on the fly.
  // Where that is not finite, nothing is changed.
  virtual void update(const Queue& queue, const ParameterUpdate& update, std::int64_t step,
                      double learning_rate, const kernels::Scalar& gradient_scale) const = 0;
  // Numbers that update() takes of each whole parameter, as norms: sums over its elements, so that
  // ranks add up those of their parts. They are made before any part is updated, in rounds: those
  // of a round take what the rounds before came to for the whole parameter.
  virtual std::vector<TensorSums> sums() const { return {}; }
  // Adds those of `round` of this part to update.sums[round], of what update() would be given;
  // changes nothing else.
  virtual void add_sums(const Queue& queue, const ParameterUpdate& update, std::size_t round,
                        std::int64_t step, double learning_rate,
                        const kernels::Scalar& gradient_scale) const;
  // All that an update takes from step and learning rate, at most `most_rates` numbers: for updates
  // that are recorded once and carried out in many steps. Empty: there are none such.
  virtual std::vector<double> rates(std::int64_t step, double learning_rate) const;
};
inline constexpr std::size_t most_rates = 8;

struct OptimizerKind {
  std::string name;
  std::unique_ptr<Optimizer> (*make)(const RunConfig& config);
  // Of the keys that not all optimizers have, those that it has, as "optimizer.beta2".
  std::vector<std::string> keys = {};
};
const std::vector<OptimizerKind>& optimizer_kinds();

// By optimizer.name; throws ConfigError for one that is none of `kinds`, and for a key that is set
// to another value than its default and that the optimizer has not.
std::unique_ptr<Optimizer> make_optimizer(
    const RunConfig& config, const std::vector<OptimizerKind>& kinds = optimizer_kinds());

}  // namespace garonne::optim
