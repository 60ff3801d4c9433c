// AdamW: decoupled weight decay (Loshchilov and Hutter, 2019), or Adam with the decay in the
// gradient; on matrices, embeddings and spectral weights only. A complex number is two real ones,
// as in PyTorch, or has one second moment, of its magnitude, as in neuraloperator.
#include <cmath>
#include <vector>

#include "kernels/optimizer_update.hpp"
#include "optim/update_parts.hpp"

namespace garonne::optim {
namespace {

class AdamW : public Optimizer {
 public:
  explicit AdamW(const RunConfig::Optimizer& keys) : keys_(keys) {}

  std::vector<StateSpec> states() const override {
    return {{.name = "first_moment"}, {.name = "second_moment"}};
  }

  void update(const Queue& queue, const ParameterUpdate& update, std::int64_t step,
              double learning_rate, const kernels::Scalar& gradient_scale) const override {
    kernels::AdamW options = options_of(step, learning_rate);
    options.epsilon = keys_.epsilon;
    const double decay = weight_decay_of(update, keys_.weight_decay);
    (keys_.decay == "l2" ? options.l2 : options.weight_decay) = decay;
    options.pairs = update.complex && keys_.complex == "joint";
    options.rates = rates_place<kernels::AdamWRates>(update);
    kernels::adamw_update(queue, update_type(update.parameter), update.parameter.data_ptr(),
                          update.states[0].data_ptr(), update.states[1].data_ptr(),
                          update.gradient.const_data_ptr(), update.parameter.numel(), options,
                          gradient_scale,
                          update.compute_copy.defined() ? update.compute_copy.data_ptr() : nullptr);
  }

  std::vector<double> rates(std::int64_t step, double learning_rate) const override {
    const kernels::AdamWRates rates = kernels::adamw_rates(options_of(step, learning_rate));
    return {rates.learning_rate, rates.step_size, rates.root};
  }

 private:
  kernels::AdamW options_of(std::int64_t step, double learning_rate) const {
    kernels::AdamW options;
    options.learning_rate = learning_rate;
    options.beta1 = keys_.beta1;
    options.beta2 = keys_.beta2;
    options.bias_correction1 = 1.0 - std::pow(keys_.beta1, static_cast<double>(step));
    options.bias_correction2 = 1.0 - std::pow(keys_.beta2, static_cast<double>(step));
    return options;
  }

  RunConfig::Optimizer keys_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const RunConfig& config) {
  return std::make_unique<AdamW>(config.optimizer);
}

}  // namespace garonne::optim
