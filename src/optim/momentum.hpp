// What optimizers with one moment share; private to this room.
#pragma once

#include "kernels/momentum_update.hpp"
#include "optim/optimizer.hpp"

namespace garonne::optim {

class MomentumOptimizer : public Optimizer {
 public:
  MomentumOptimizer(const RunConfig::Optimizer& keys, kernels::MomentumRule rule);

  std::vector<StateSpec> states() const override { return {{.name = "first_moment"}}; }
  void update(const Queue& queue, const ParameterUpdate& update, std::int64_t step,
              double learning_rate, const kernels::Scalar& gradient_scale) const override;
  std::vector<double> rates(std::int64_t step, double learning_rate) const override;

 protected:
  const RunConfig::Optimizer& keys() const { return keys_; }
  // With what is the rule's own.
  virtual kernels::Momentum options_of(const ParameterUpdate&) const { return {}; }

 private:
  RunConfig::Optimizer keys_;
  kernels::MomentumRule rule_;
};

}  // namespace garonne::optim
