#include "train/evaluation/missing_values.hpp"

#include <cmath>

#include "base/error.hpp"

namespace garonne::train {

MissingValues::MissingValues(const data::FieldStatistics& statistics, std::int64_t input_channels,
                             std::int64_t target_channels, std::int64_t points)
    : input_mean_(static_cast<std::size_t>(input_channels * points)),
      target_mean_(static_cast<std::size_t>(target_channels * points)) {
  statistics.inputs.restore(0, points, input_mean_);
  statistics.targets.restore(0, points, target_mean_);
}

void MissingValues::fill_inputs(std::span<float> states) const {
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (std::isnan(states[i])) states[i] = input_mean_[i % input_mean_.size()];
  }
}

void MissingValues::fill_forecast(std::span<const float> truth, std::span<float> forecast) const {
  expect(truth.size() == forecast.size() && truth.size() == target_mean_.size(),
         "a forecast has another size than its truth");
  for (std::size_t i = 0; i < truth.size(); ++i) {
    if (std::isnan(truth[i])) forecast[i] = target_mean_[i];
  }
}

}  // namespace garonne::train
