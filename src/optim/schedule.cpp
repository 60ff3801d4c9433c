#include "optim/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace garonne::optim {

double learning_rate_at(const RunConfig& config, std::int64_t step) {
  const auto& keys = config.optimizer;
  if (step <= keys.warmup_steps) {
    return keys.learning_rate * static_cast<double>(step) / static_cast<double>(keys.warmup_steps);
  }
  const double span =
      static_cast<double>(std::max<std::int64_t>(1, config.train.steps - keys.warmup_steps));
  const double progress = std::min(1.0, static_cast<double>(step - keys.warmup_steps) / span);
  const double height = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return keys.minimum_learning_rate + height * (keys.learning_rate - keys.minimum_learning_rate);
}

}  // namespace garonne::optim
