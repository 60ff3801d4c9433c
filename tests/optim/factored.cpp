// An optimizer that keeps of the squared gradients of 16 × 16 elements the sums of rows and columns
// only, after Adafactor (Shazeer and Stern, arXiv 1804.04235), and no first moment.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "optim/exercise_optimizers.hpp"

namespace garonne::optim {
namespace {

constexpr std::int64_t side = 16;

class Factored final : public Optimizer {
 public:
  explicit Factored(const RunConfig::Optimizer& keys) : keys_(keys) {}

  std::vector<StateSpec> states() const override {
    return {{.name = "factors", .blocks = {side * side, 2 * side}}};
  }

  void update(const Queue&, const ParameterUpdate& update, std::int64_t, double learning_rate,
              const kernels::Scalar& gradient_scale) const override {
    update_as(update, gradient_scale, [&](auto number, double scale) {
      run<decltype(number)>(update, learning_rate, scale);
    });
  }

 private:
  template <typename Number>
  void run(const ParameterUpdate& update, double learning_rate, double gradient_scale) const {
    auto* parameter = update.parameter.data_ptr<Number>();
    const auto* gradient = update.gradient.const_data_ptr<Number>();
    const std::int64_t elements = update.parameter.numel();
    for (std::int64_t begin = 0; begin < elements; begin += side * side) {
      const std::int64_t end = std::min(elements, begin + side * side);
      auto* rows = update.states[0].data_ptr<Number>() + begin / (side * side) * 2 * side;
      auto* columns = rows + side;
      double of_rows[side] = {};
      double of_columns[side] = {};
      for (std::int64_t i = begin; i < end; ++i) {
        const double slope = static_cast<double>(gradient[i]) * gradient_scale;
        of_rows[(i - begin) / side] += slope * slope;
        of_columns[(i - begin) % side] += slope * slope;
      }
      double all = 0;
      for (std::int64_t k = 0; k < side; ++k) {
        const auto mix = [&](Number& kept, double now) {
          kept = static_cast<Number>(keys_.beta2 * static_cast<double>(kept) +
                                     (1 - keys_.beta2) * now);
        };
        mix(rows[k], of_rows[k]);
        mix(columns[k], of_columns[k]);
        all += static_cast<double>(rows[k]);
      }
      for (std::int64_t i = begin; i < end && all > 0; ++i) {
        const double square = static_cast<double>(rows[(i - begin) / side]) *
                              static_cast<double>(columns[(i - begin) % side]) / all;
        const double slope = static_cast<double>(gradient[i]) * gradient_scale;
        parameter[i] -=
            static_cast<Number>(learning_rate * slope / (std::sqrt(square) + keys_.epsilon));
      }
    }
  }

  RunConfig::Optimizer keys_;
};

}  // namespace

std::unique_ptr<Optimizer> make_factored(const RunConfig& config) {
  return std::make_unique<Factored>(config.optimizer);
}

}  // namespace garonne::optim
