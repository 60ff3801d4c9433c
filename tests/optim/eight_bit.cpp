// An optimizer whose second moment is 8-bit codes with one scale for 256 elements, as in the 8-bit
// Adam of Dettmers et al. (arXiv 2110.02861), with codes that are linear in the root. It is here to
// see what an optimizer with states of other shapes takes.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "optim/exercise_optimizers.hpp"

namespace garonne::optim {
namespace {

constexpr std::int64_t block_elements = 256;
constexpr double most_code = 255;

class EightBit final : public Optimizer {
 public:
  explicit EightBit(const RunConfig::Optimizer& keys) : keys_(keys) {}

  std::vector<StateSpec> states() const override {
    return {{.name = "first_moment"},
            {.name = "codes", .type = StateType::UInt8},
            {.name = "scales", .type = StateType::Float32, .blocks = {block_elements, 1}}};
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
    auto* first = update.states[0].data_ptr<Number>();
    auto* codes = update.states[1].data_ptr<std::uint8_t>();
    auto* scales = update.states[2].data_ptr<float>();
    const auto* gradient = update.gradient.const_data_ptr<Number>();
    const std::int64_t elements = update.parameter.numel();
    for (std::int64_t begin = 0; begin < elements; begin += block_elements) {
      const std::int64_t end = std::min(elements, begin + block_elements);
      float& scale = scales[begin / block_elements];
      double roots[block_elements];
      double largest = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        const double slope = static_cast<double>(gradient[i]) * gradient_scale;
        const double before = codes[i] / most_code * static_cast<double>(scale);
        double& root = roots[i - begin];
        root = std::sqrt(keys_.beta2 * before * before + (1 - keys_.beta2) * slope * slope);
        largest = std::max(largest, root);
        first[i] = static_cast<Number>(keys_.beta1 * static_cast<double>(first[i]) +
                                       (1 - keys_.beta1) * slope);
        parameter[i] -= static_cast<Number>(learning_rate * static_cast<double>(first[i]) /
                                            (root + keys_.epsilon));
      }
      scale = static_cast<float>(largest);
      for (std::int64_t i = begin; i < end; ++i) {
        codes[i] =
            largest > 0
                ? static_cast<std::uint8_t>(std::lround(roots[i - begin] / largest * most_code))
                : std::uint8_t{0};
      }
    }
  }

  RunConfig::Optimizer keys_;
};

}  // namespace

std::unique_ptr<Optimizer> make_eight_bit(const RunConfig& config) {
  return std::make_unique<EightBit>(config.optimizer);
}

}  // namespace garonne::optim
