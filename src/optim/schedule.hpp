// Learning rate by step: linear warm-up, then what optimizer.schedule says. A new schedule is one
// line of the registry (schedule.cpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/config.hpp"

namespace garonne::optim {

struct RateScheduleKind {
  std::string name;
  // How much of the way from optimizer.minimum_learning_rate up to optimizer.learning_rate is left,
  // 1 to 0, `steps` after the warm-up; `span` is how many there are, at least 1.
  double (*height)(const RunConfig::Optimizer& keys, double steps, double span);
};
const std::vector<RateScheduleKind>& rate_schedule_kinds();

// What the rates of the run file are multiplied with, those being of batches of
// optimizer.base_batch samples: 1 where that is 0. Throws ConfigError for an
// optimizer.batch_scaling without a base.
double batch_scale(const RunConfig& config);

// Of step `step` (from 1) of `train.steps`; a function of the configuration and the step alone.
// Throws ConfigError for an optimizer.schedule that is none.
double learning_rate_at(const RunConfig& config, std::int64_t step);

}  // namespace garonne::optim
