// What of summaries a run takes, and normalising with it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/contains.hpp"
#include "base/error.hpp"
#include "data/fields/field_match.hpp"
#include "data/statistics/field_statistics.hpp"

namespace garonne::data {
namespace {

// Least deviation of a point, of its channel's.
constexpr double constant_point = 1e-3;

// Calls change(value, mean, deviation) for every value of a slab.
template <typename Change>
void for_each_value(const FieldMoments& moments, std::int64_t first_row, std::int64_t plane,
                    std::span<float> values, Change change) {
  if (moments.channels.empty() || values.empty()) return;
  const auto channels = static_cast<std::int64_t>(moments.channels.size());
  const std::int64_t planes = static_cast<std::int64_t>(values.size()) / plane;
  expect(planes % channels == 0, "values and statistics differ in their channels");
  std::int64_t row_points = 1;  // of a row of the first axis
  for (std::size_t axis = 1; axis < moments.points.size(); ++axis) {
    row_points *= moments.points[axis];
  }
  const std::int64_t all_points = moments.points.empty() ? 1 : moments.points[0] * row_points;
  for (std::int64_t number = 0; number < planes; ++number) {
    float* value = values.data() + number * plane;
    const std::int64_t channel = number % channels;
    const float* mean = moments.mean.data() + channel * all_points;
    const float* deviation = moments.deviation.data() + channel * all_points;
    if (moments.points.empty()) {
      for (std::int64_t point = 0; point < plane; ++point) change(value[point], *mean, *deviation);
      continue;
    }
    mean += first_row * row_points;
    deviation += first_row * row_points;
    for (std::int64_t point = 0; point < plane; ++point) {
      change(value[point], mean[point], deviation[point]);
    }
  }
}

// Channels that are the same at all times are summarised only where they are named.
std::string remedy_for_constant(const std::string& channel, const FieldDatasetInfo& info) {
  if (!contains(info.constant_inputs, channel)) return "";
  return fmt::format(
      "; it is the same at all times, and such channels have to be named: `garonne data statistics "
      "{} --channels {} …`",
      info.path, fmt::join(channels_of(info), ","));
}

FieldMoments choose_moments(const FieldSummary& summary, const std::string& mode,
                            const std::vector<std::string>& wanted, const FieldDatasetInfo& info,
                            const std::string& source) {
  const std::vector<std::int64_t>& points = info.points;
  FieldMoments moments;
  moments.channels = wanted;
  const bool pointwise = mode == "pointwise";
  if (pointwise && (summary.point_mean.empty() || summary.point_deviation.empty())) {
    throw IoError(source,
                  "there are no statistics of each point here; make them with `garonne data "
                  "statistics … --pointwise --output FILE.h5`");
  }
  if (pointwise && summary.points != points) {
    throw IoError(source, fmt::format("statistics of the points [{}], but the data have [{}]",
                                      fmt::join(summary.points, ", "), fmt::join(points, ", ")));
  }
  if (pointwise) moments.points = points;
  const std::vector<double>& mean = pointwise ? summary.point_mean : summary.mean;
  const std::vector<double>& deviation = pointwise ? summary.point_deviation : summary.deviation;
  std::size_t each = 1;
  for (const std::int64_t size : moments.points) each *= static_cast<std::size_t>(size);
  const std::size_t channels = summary.channels.size();
  const std::size_t changes = summary.difference_deviation.size();
  if (mean.size() != channels * each || deviation.size() != channels * each ||
      summary.deviation.size() != channels || (changes != 0 && changes != channels)) {
    throw IoError(source, fmt::format("has {} means and {} deviations for {} channels of {} values",
                                      mean.size(), deviation.size(), channels, each));
  }
  for (const std::string& channel : wanted) {
    const auto found = std::find(summary.channels.begin(), summary.channels.end(), channel);
    if (found == summary.channels.end()) {
      throw IoError(
          source,
          fmt::format("no statistics of channel \"{}\": they are of {} channels "
                      "({}), wanted are {} ({}){}",
                      channel, summary.channels.size(), fmt::join(summary.channels, ", "),
                      wanted.size(), fmt::join(wanted, ", "), remedy_for_constant(channel, info)));
    }
    const auto place = static_cast<std::size_t>(found - summary.channels.begin());
    for (std::size_t index = place * each; index < (place + 1) * each; ++index) {
      if (!std::isfinite(mean[index]) || !std::isfinite(deviation[index]) || deviation[index] < 0) {
        throw IoError(source,
                      fmt::format("mean {} and deviation {} of channel \"{}\" cannot be used",
                                  mean[index], deviation[index], channel));
      }
      // A point that never changes, as on a wall, is decoded to what it always is, whatever a model
      // says of it; what is left of its own value by rounding is not blown up either.
      const double least = pointwise ? constant_point * summary.deviation[place] : 0;
      const bool constant = place < summary.least.size() && place < summary.greatest.size() &&
                            summary.least[place] == summary.greatest[place];
      const auto scale = constant ? 0.0F : static_cast<float>(std::max(deviation[index], least));
      moments.mean.push_back(static_cast<float>(mean[index]));
      moments.deviation.push_back(scale == 0 ? 1.0F : scale);
    }
    if (!summary.difference_deviation.empty()) {
      moments.difference_deviation.push_back(
          static_cast<float>(summary.difference_deviation[place]));
    }
  }
  return moments;
}

// Throws IoError (`source`).
void expect_same_traits(const FieldSummaries& summaries, const std::string& mode,
                        const FieldDatasetInfo& info, const std::string& source) {
  FieldTraits traits;
  traits.of = source;
  traits.axes = summaries.axes;
  if (mode == "pointwise") traits.coordinates = summaries.coordinates;
  for (const FieldSummary* summary : {&summaries.inputs, &summaries.targets}) {
    std::vector<std::string> units = summary->units;
    units.resize(summary->channels.size());
    traits.channels.insert(traits.channels.end(), summary->channels.begin(),
                           summary->channels.end());
    traits.units.insert(traits.units.end(), units.begin(), units.end());
  }
  const std::string difference = difference_of(traits, traits_of(info));
  if (!difference.empty()) throw IoError(source, difference);
}

}  // namespace

std::vector<std::string> channels_of(const FieldDatasetInfo& info) {
  std::vector<std::string> channels = info.input_channels;
  for (const std::string& channel : info.target_channels) {
    if (!info.pairs && !contains(channels, channel)) channels.push_back(channel);
  }
  return channels;
}

void FieldMoments::normalise(std::int64_t first_row, std::int64_t plane,
                             std::span<float> values) const {
  for_each_value(*this, first_row, plane, values,
                 [](float& value, float middle, float scale) { value = (value - middle) / scale; });
}

void FieldMoments::restore(std::int64_t first_row, std::int64_t plane,
                           std::span<float> values) const {
  for_each_value(*this, first_row, plane, values,
                 [](float& value, float middle, float scale) { value = value * scale + middle; });
}

void check_normalisation(const std::string& mode) {
  if (mode == "none" || mode == "channel" || mode == "pointwise") return;
  throw ConfigError("data.normalisation", mode, "must be none, channel or pointwise");
}

FieldStatistics choose_statistics(const FieldSummaries& summaries, const std::string& mode,
                                  const FieldDatasetInfo& info, const std::string& source) {
  check_normalisation(mode);
  FieldStatistics statistics;
  statistics.mode = mode;
  if (mode == "none") return statistics;
  expect_same_traits(summaries, mode, info, source);
  const FieldSummary& targets = info.pairs ? summaries.targets : summaries.inputs;
  statistics.inputs = choose_moments(summaries.inputs, mode, info.input_channels, info, source);
  statistics.targets = choose_moments(targets, mode, info.target_channels, info, source);
  return statistics;
}

}  // namespace garonne::data
