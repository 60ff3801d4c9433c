// LAMB (You et al., arXiv 1904.00962): AdamW's direction, of each matrix as long as the matrix
// itself; what has one dimension is updated as by AdamW.
#include <cmath>
#include <vector>

#include "kernels/lamb_update.hpp"
#include "kernels/reduction.hpp"
#include "optim/update_parts.hpp"

namespace garonne::optim {
namespace {

class Lamb final : public Optimizer {
 public:
  explicit Lamb(const RunConfig::Optimizer& keys) : keys_(keys) {}

  std::vector<StateSpec> states() const override {
    return {{.name = "first_moment"}, {.name = "second_moment"}};
  }

  // Squares of the parameter and of its direction.
  std::vector<TensorSums> sums() const override { return {{.numbers = 2}}; }

  void add_sums(const Queue& queue, const ParameterUpdate& update, std::size_t round,
                std::int64_t step, double learning_rate,
                const kernels::Scalar& gradient_scale) const override {
    if (!update.matrix) return;
    const kernels::ElementType type = update_type(update.parameter);
    const std::int64_t elements = update.parameter.numel();
    kernels::add_sum_of_squares(queue, type, update.parameter.const_data_ptr(), elements,
                                update.sums[round].data_ptr<double>());
    kernels::add_lamb_squares(queue, type, update.parameter.const_data_ptr(),
                              update.states[0].const_data_ptr(), update.states[1].const_data_ptr(),
                              update.gradient.const_data_ptr(), elements,
                              options_of(update, step, learning_rate), gradient_scale,
                              update.sums[round].data_ptr<double>() + 1);
  }

  void update(const Queue& queue, const ParameterUpdate& update, std::int64_t step,
              double learning_rate, const kernels::Scalar& gradient_scale) const override {
    kernels::lamb_update(queue, update_type(update.parameter), update.parameter.data_ptr(),
                         update.states[0].data_ptr(), update.states[1].data_ptr(),
                         update.gradient.const_data_ptr(), update.parameter.numel(),
                         options_of(update, step, learning_rate), gradient_scale,
                         update.compute_copy.defined() ? update.compute_copy.data_ptr() : nullptr);
  }

  std::vector<double> rates(std::int64_t step, double learning_rate) const override {
    const kernels::LambRates rates = rates_of(step, learning_rate);
    return {rates.learning_rate, rates.correction, rates.root};
  }

 private:
  kernels::LambRates rates_of(std::int64_t step, double learning_rate) const {
    const auto steps = static_cast<double>(step);
    return {.learning_rate = learning_rate,
            .correction = 1.0 / (1.0 - std::pow(keys_.beta1, steps)),
            .root = 1.0 / std::sqrt(1.0 - std::pow(keys_.beta2, steps))};
  }

  kernels::Lamb options_of(const ParameterUpdate& update, std::int64_t step,
                           double learning_rate) const {
    kernels::Lamb options;
    options.squares = adapting_sums(update).place;
    options.rates = rates_of(step, learning_rate);
    options.rates_place = rates_place<kernels::LambRates>(update);
    options.beta1 = keys_.beta1;
    options.beta2 = keys_.beta2;
    options.epsilon = keys_.epsilon;
    (keys_.decay == "l2" ? options.l2 : options.weight_decay) =
        weight_decay_of(update, keys_.weight_decay);
    options.trust_limit = keys_.trust_limit;
    return options;
  }

  RunConfig::Optimizer keys_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lamb(const RunConfig& config) {
  return std::make_unique<Lamb>(config.optimizer);
}

}  // namespace garonne::optim
