// What stands for values that are not there along a forecast; the same as in training.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/statistics/field_statistics.hpp"

namespace garonne::train {

// NaN in the units of the data becomes the mean, which is 0 once it is normalised.
class MissingValues {
 public:
  // `points`: of one channel.
  MissingValues(const data::FieldStatistics& statistics, std::int64_t input_channels,
                std::int64_t target_channels, std::int64_t points);

  // In states [any number of frames, input channels, points].
  void fill_inputs(std::span<float> states) const;
  // In a forecast [target channels, points] where the truth has no value, so that what a model
  // makes of such points is not read again.
  void fill_forecast(std::span<const float> truth, std::span<float> forecast) const;

 private:
  std::vector<float> input_mean_;   // [input channels, points]
  std::vector<float> target_mean_;  // [target channels, points]
};

}  // namespace garonne::train
