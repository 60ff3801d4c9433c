#include "optim/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.hpp"

namespace garonne::optim {
namespace {

// Loshchilov and Hutter, arXiv 1608.03983, without restarts.
double cosine(const RunConfig::Optimizer&, double steps, double span) {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * steps / span));
}

double linear(const RunConfig::Optimizer&, double steps, double span) {
  return 1.0 - steps / span;
}

double constant(const RunConfig::Optimizer&, double, double) {
  return 1.0;
}

// Warm-up, stable, decay (Hu et al., arXiv 2404.06395), linear at the end.
double stable_then_linear(const RunConfig::Optimizer& keys, double steps, double span) {
  const double decay = keys.decay_steps > 0 ? static_cast<double>(keys.decay_steps) : 0.1 * span;
  return std::min(1.0, (span - steps) / std::min(decay, span));
}

}  // namespace

const std::vector<RateScheduleKind>& rate_schedule_kinds() {
  static const std::vector<RateScheduleKind> registry = {
      {"cosine", cosine},
      {"linear", linear},
      {"constant", constant},
      {"warmup-stable-decay", stable_then_linear},
  };
  return registry;
}

// Linear: Goyal et al., arXiv 1706.02677. By the root: You et al., arXiv 1904.00962.
double batch_scale(const RunConfig& config) {
  const auto& keys = config.optimizer;
  if (keys.base_batch == 0) {
    if (keys.batch_scaling == RunConfig::Optimizer().batch_scaling) return 1.0;
    throw ConfigError("optimizer.batch_scaling", keys.batch_scaling,
                      "scales with train.global_batch over optimizer.base_batch, which is 0; set "
                      "that to the batch which the rates are for");
  }
  const double times =
      static_cast<double>(config.train.global_batch) / static_cast<double>(keys.base_batch);
  return keys.batch_scaling == "root" ? std::sqrt(times) : times;
}

namespace {

double rate_of_base_batch(const RunConfig& config, std::int64_t step) {
  const auto& keys = config.optimizer;
  if (step <= keys.warmup_steps) {
    return keys.learning_rate * static_cast<double>(step) / static_cast<double>(keys.warmup_steps);
  }
  const auto& kinds = rate_schedule_kinds();
  const auto kind = std::find_if(kinds.begin(), kinds.end(),
                                 [&](const auto& row) { return row.name == keys.schedule; });
  if (kind == kinds.end())
    throw ConfigError("optimizer.schedule", keys.schedule, "is no known schedule");
  const double span =
      static_cast<double>(std::max<std::int64_t>(1, config.train.steps - keys.warmup_steps));
  const double steps = std::min(span, static_cast<double>(step - keys.warmup_steps));
  return keys.minimum_learning_rate +
         kind->height(keys, steps, span) * (keys.learning_rate - keys.minimum_learning_rate);
}

}  // namespace

double learning_rate_at(const RunConfig& config, std::int64_t step) {
  return batch_scale(config) * rate_of_base_batch(config, step);
}

}  // namespace garonne::optim
