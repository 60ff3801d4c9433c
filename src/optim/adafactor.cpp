// Adafactor (Shazeer and Stern, arXiv 1804.04235) without a first moment, as T5 was trained: of the
// squares of a matrix's gradients the means of its rows and columns are kept, and updates are
// bounded and, where optimizer.smallest_scale says so, as large as the parameter. What has one
// dimension is a matrix of one column, of which that is the second moment itself.
#include <cmath>
#include <vector>

#include "kernels/adafactor_update.hpp"
#include "optim/update_parts.hpp"

namespace garonne::optim {
namespace {

class Adafactor final : public Optimizer {
 public:
  explicit Adafactor(const RunConfig::Optimizer& keys) : keys_(keys) {}

  std::vector<StateSpec> states() const override {
    return {{.name = "row_moment", .blocks = StateBlocks::of_side(MatrixSide::Rows)},
            {.name = "column_moment", .blocks = StateBlocks::of_side(MatrixSide::Columns)}};
  }

  // Squares of parameter and gradient, and of its rows and columns; then those of the directions,
  // which follow from these.
  std::vector<TensorSums> sums() const override {
    return {{.numbers = kernels::AdafactorSums::sides, .sides = true}, {.numbers = 1}};
  }

  void add_sums(const Queue& queue, const ParameterUpdate& update, std::size_t round,
                std::int64_t step, double learning_rate,
                const kernels::Scalar& gradient_scale) const override {
    const kernels::ElementType type = update_type(update.parameter);
    kernels::Adafactor options = options_of(update, step, learning_rate);
    if (round == 0) {
      kernels::add_adafactor_sums(queue, type, update.parameter.const_data_ptr(),
                                  update.states[0].const_data_ptr(),
                                  update.gradient.const_data_ptr(), update.part, options,
                                  gradient_scale, update.sums[0].data_ptr<double>());
      return;
    }
    options.sums = sums_of(update, 0).place;
    kernels::add_adafactor_squares(
        queue, type, update.parameter.const_data_ptr(), update.states[0].const_data_ptr(),
        update.states[1].const_data_ptr(), update.gradient.const_data_ptr(), update.part, options,
        gradient_scale, update.sums[1].data_ptr<double>());
  }

  void update(const Queue& queue, const ParameterUpdate& update, std::int64_t step,
              double learning_rate, const kernels::Scalar& gradient_scale) const override {
    kernels::Adafactor options = options_of(update, step, learning_rate);
    options.sums = sums_of(update, 0).place;
    options.squares = sums_of(update, 1).place;
    kernels::adafactor_update(
        queue, update_type(update.parameter), update.parameter.data_ptr(),
        update.states[0].data_ptr(), update.states[1].data_ptr(), update.gradient.const_data_ptr(),
        update.parameter.numel(), update.part, options, gradient_scale,
        update.compute_copy.defined() ? update.compute_copy.data_ptr() : nullptr);
  }

  std::vector<double> rates(std::int64_t step, double learning_rate) const override {
    const kernels::AdafactorRates rates = rates_of(step, learning_rate);
    return {rates.learning_rate, rates.kept, rates.added};
  }

 private:
  kernels::AdafactorRates rates_of(std::int64_t step, double learning_rate) const {
    const double added = std::pow(static_cast<double>(step), -keys_.beta2_power);
    return {.learning_rate = learning_rate, .kept = 1.0 - added, .added = added};
  }

  kernels::Adafactor options_of(const ParameterUpdate& update, std::int64_t step,
                                double learning_rate) const {
    kernels::Adafactor options;
    options.rates = rates_of(step, learning_rate);
    options.rates_place = rates_place<kernels::AdafactorRates>(update);
    options.square_epsilon = keys_.square_epsilon;
    options.update_limit = keys_.update_limit;
    options.smallest_scale = keys_.smallest_scale;
    (keys_.decay == "l2" ? options.l2 : options.weight_decay) =
        weight_decay_of(update, keys_.weight_decay);
    return options;
  }

  RunConfig::Optimizer keys_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(const RunConfig& config) {
  return std::make_unique<Adafactor>(config.optimizer);
}

}  // namespace garonne::optim
