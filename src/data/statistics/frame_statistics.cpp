#include "data/statistics/frame_statistics.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "base/error.hpp"
#include "data/statistics/npy.hpp"

namespace garonne::data {
namespace {

struct FrameMoments {
  double mean = 0;
  double variance = 0;
};

// Of value(point) over the sphere, in two passes.
template <typename Value>
FrameMoments moments_of(const SphereGrid& grid, Value value) {
  const auto average = [&](auto function) {
    double sum = 0;
    for (std::int64_t row = 0; row < grid.latitudes; ++row) {
      double along = 0;
      for (std::int64_t column = 0; column < grid.longitudes; ++column) {
        along += function(static_cast<std::size_t>(row * grid.longitudes + column));
      }
      sum += grid.weights[static_cast<std::size_t>(row)] * along;
    }
    return sum / (2 * static_cast<double>(grid.longitudes));
  };
  const double mean = average(value);
  const double variance = average([&](std::size_t point) {
    const double distance = value(point) - mean;
    return distance * distance;
  });
  return {mean, variance};
}

}  // namespace

void FrameStatistics::Moments::add(double frame_mean, double frame_variance) {
  const double distance = frame_mean - mean;
  frames += 1;
  mean += distance / frames;
  squares += frame_variance + distance * distance * (frames - 1) / frames;
}

double FrameStatistics::Moments::deviation() const {
  return std::sqrt(squares / frames);
}

FrameStatistics::FrameStatistics(const SphereGrid& grid, std::int64_t channels)
    : grid_(grid),
      channels_(channels),
      values_(static_cast<std::size_t>(channels)),
      differences_(static_cast<std::size_t>(channels)),
      least_(static_cast<std::size_t>(channels), std::numeric_limits<float>::infinity()),
      largest_(static_cast<std::size_t>(channels), -std::numeric_limits<float>::infinity()),
      time_sums_(static_cast<std::size_t>(channels * grid.latitudes * grid.longitudes)) {}

void FrameStatistics::add(std::span<const float> values, bool continues) {
  expect(values.size() == time_sums_.size(), "statistics: a frame of another size");
  const std::size_t points = values.size() / static_cast<std::size_t>(channels_);
  for (std::int64_t channel = 0; channel < channels_; ++channel) {
    const auto index = static_cast<std::size_t>(channel);
    const std::span<const float> field = values.subspan(index * points, points);
    const FrameMoments now =
        moments_of(grid_, [&](std::size_t point) { return static_cast<double>(field[point]); });
    values_[index].add(now.mean, now.variance);
    const auto [least, largest] = std::minmax_element(field.begin(), field.end());
    least_[index] = std::min(least_[index], *least);
    largest_[index] = std::max(largest_[index], *largest);
    if (continues) {
      const std::span<const float> old = std::span(before_).subspan(index * points, points);
      const FrameMoments change = moments_of(grid_, [&](std::size_t point) {
        return static_cast<double>(field[point]) - static_cast<double>(old[point]);
      });
      differences_[index].add(change.mean, change.variance);
    }
  }
  for (std::size_t index = 0; index < values.size(); ++index) {
    time_sums_[index] += static_cast<double>(values[index]);
  }
  before_.assign(values.begin(), values.end());
  ++frames_;
}

double FrameStatistics::deviation(std::int64_t channel) const {
  return values_[static_cast<std::size_t>(channel)].deviation();
}

void FrameStatistics::write(const std::string& folder) const {
  const std::vector<std::int64_t> per_channel = {1, channels_, 1, 1};
  const auto write_values = [&](const char* name, const std::vector<std::int64_t>& shape,
                                const std::vector<float>& values) {
    const auto path = std::filesystem::path(folder) / (std::string(name) + ".npy");
    write_npy<float>(path.string(), shape, values);
  };
  const auto write_moments = [&](const char* means, const char* deviations,
                                 const std::vector<Moments>& moments) {
    std::vector<float> mean;
    std::vector<float> deviation;
    for (const Moments& of_channel : moments) {
      mean.push_back(static_cast<float>(of_channel.mean));
      deviation.push_back(static_cast<float>(of_channel.deviation()));
    }
    write_values(means, per_channel, mean);
    write_values(deviations, per_channel, deviation);
  };
  write_moments("global_means", "global_stds", values_);
  if (differences_[0].frames > 0) {
    write_moments("time_diff_means_dt1", "time_diff_stds_dt1", differences_);
  }
  write_values("mins", per_channel, least_);
  write_values("maxs", per_channel, largest_);
  std::vector<float> means;
  means.reserve(time_sums_.size());
  for (const double sum : time_sums_) {
    means.push_back(static_cast<float>(sum / static_cast<double>(frames_)));
  }
  write_values("time_means", {1, channels_, grid_.latitudes, grid_.longitudes}, means);
}

}  // namespace garonne::data
