#include "optim/momentum.hpp"

#include "optim/update_parts.hpp"

namespace garonne::optim {

MomentumOptimizer::MomentumOptimizer(const RunConfig::Optimizer& keys, kernels::MomentumRule rule)
    : keys_(keys), rule_(rule) {}

void MomentumOptimizer::update(const Queue& queue, const ParameterUpdate& update, std::int64_t,
                               double learning_rate, const kernels::Scalar& gradient_scale) const {
  kernels::Momentum options = options_of(update);
  options.rule = rule_;
  options.beta1 = keys_.beta1;
  options.beta2 = keys_.beta2;
  (keys_.decay == "l2" ? options.l2 : options.weight_decay) =
      weight_decay_of(update, keys_.weight_decay);
  kernels::momentum_update(
      queue, update_type(update.parameter), update.parameter.data_ptr(),
      update.states[0].data_ptr(), update.gradient.const_data_ptr(), update.parameter.numel(),
      options, {.place = update.rates, .value = learning_rate}, gradient_scale,
      update.compute_copy.defined() ? update.compute_copy.data_ptr() : nullptr);
}

std::vector<double> MomentumOptimizer::rates(std::int64_t, double learning_rate) const {
  return {learning_rate};
}

}  // namespace garonne::optim
