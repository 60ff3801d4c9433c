#include "train/evaluation/skill.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "data/statistics/field_statistics.hpp"

namespace garonne::train {
namespace {

void scale_to_mean_one(std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight *= static_cast<double>(weights.size()) / sum;
}

}  // namespace

// --- weights ---

bool on_latitudes(const data::FieldDatasetInfo& info) {
  return info.points.size() == 2 && !info.axes.empty() && info.axes[0] == "latitude" &&
         !info.coordinates.empty() && !info.coordinates[0].empty();
}

std::optional<SphereGrid> quadrature_grid(const data::FieldDatasetInfo& info) {
  if (!is_sphere_grid(info.grid) || info.points.size() != 2 || info.points[0] < 2)
    return std::nullopt;
  SphereGrid grid =
      make_sphere_grid(sphere_grid_kind("data.layout", info.grid), info.points[0], info.points[1]);
  // Files without coordinates are the published ones, whose last row may be left out.
  if (!on_latitudes(info)) return std::nullopt;
  const std::vector<double>& latitudes = info.coordinates[0];
  const double sign = latitudes.front() > latitudes.back() ? 1 : -1;
  const double step = 180.0 / static_cast<double>(latitudes.size());
  for (std::size_t row = 0; row < latitudes.size(); ++row) {
    const double expected = sign * (90 - grid.colatitudes[row] / radians_per_degree);
    if (std::abs(latitudes[row] - expected) > 0.02 * step) return std::nullopt;
  }
  return grid;
}

std::vector<std::string> weighting_names() {
  return {"cos-latitude", "cell-area", "quadrature", "uniform"};
}

Weighting make_weighting(const std::string& name, const data::FieldDatasetInfo& info) {
  const std::vector<std::string> names = weighting_names();
  if (name != "auto" && std::find(names.begin(), names.end(), name) == names.end()) {
    throw ConfigError("--weighting", name,
                      fmt::format("known are auto, {}", fmt::join(names, ", ")));
  }
  const std::string chosen = name != "auto" ? name : (on_latitudes(info) ? "cell-area" : "uniform");
  if (chosen == "uniform") {
    return {chosen, std::vector<double>(static_cast<std::size_t>(info.points[0]), 1.0)};
  }
  if (!on_latitudes(info)) {
    throw ConfigError(
        "--weighting", name,
        fmt::format("wants the latitudes of the rows, and the files of {} have none; use uniform",
                    info.path));
  }
  const std::vector<double>& latitudes = info.coordinates[0];
  if (chosen == "cell-area") return {chosen, data::area_weights(latitudes)};
  if (chosen == "cos-latitude") {
    std::vector<double> weights;
    for (const double latitude : latitudes) {
      weights.push_back(std::max(0.0, std::cos(latitude * radians_per_degree)));
    }
    scale_to_mean_one(weights);
    return {chosen, std::move(weights)};
  }
  const auto grid = quadrature_grid(info);
  if (!grid) {
    throw ConfigError("--weighting", name,
                      fmt::format("wants Gauss latitudes, or equally spaced ones with both poles "
                                  "or in the middle of equal bands; {} has others; use cell-area",
                                  info.path));
  }
  return {chosen, mean_one_weights(*grid)};
}

// --- errors ---

FieldSkill field_skill(std::span<const float> forecast, std::span<const float> truth,
                       std::span<const float> climatology, const Weighting& weighting) {
  expect(forecast.size() == truth.size() && climatology.size() == truth.size() &&
             truth.size() % weighting.rows.size() == 0,
         "fields of different sizes were compared");
  const std::size_t columns = truth.size() / weighting.rows.size();
  double error = 0;
  double squares = 0;
  double truth_squares = 0;
  double product = 0;
  double forecast_anomaly = 0;
  double truth_anomaly = 0;
  double weights = 0;
  FieldSkill skill;
  for (std::size_t row = 0; row < weighting.rows.size(); ++row) {
    const double weight = weighting.rows[row];
    for (std::size_t i = row * columns; i < (row + 1) * columns; ++i) {
      const double f = forecast[i];
      const double t = truth[i];
      const double c = climatology[i];
      if (std::isnan(t) || std::isnan(c)) continue;
      ++skill.points;
      weights += weight;
      error += weight * (f - t);
      squares += weight * (f - t) * (f - t);
      truth_squares += weight * t * t;
      product += weight * (f - c) * (t - c);
      forecast_anomaly += weight * (f - c) * (f - c);
      truth_anomaly += weight * (t - c) * (t - c);
    }
  }
  // Weights of all points have a mean of 1.
  const bool all = skill.points == static_cast<std::int64_t>(truth.size());
  const double count = all ? static_cast<double>(truth.size()) : weights;
  skill.squared_error = squares / count;
  skill.bias = error / count;
  skill.relative_l2 = std::sqrt(squares / truth_squares);
  skill.anomaly_correlation = forecast_anomaly > 0 && truth_anomaly > 0
                                  ? product / std::sqrt(forecast_anomaly * truth_anomaly)
                                  : std::numeric_limits<double>::quiet_NaN();
  return skill;
}

SkillTable::SkillTable(std::size_t sources, std::size_t leads, std::size_t channels)
    : leads_(leads),
      channels_(channels),
      sums_(sources * leads * channels),
      counts_(sources * leads * channels) {}

void SkillTable::add(std::size_t source, std::size_t lead, std::size_t channel,
                     const FieldSkill& skill) {
  if (skill.points == 0) return;
  const std::size_t at = (source * leads_ + lead) * channels_ + channel;
  sums_[at].squared_error += skill.squared_error;
  sums_[at].bias += skill.bias;
  sums_[at].relative_l2 += skill.relative_l2;
  sums_[at].anomaly_correlation += skill.anomaly_correlation;
  ++counts_[at];
}

std::vector<double> SkillTable::means_of(double FieldSkill::*member) const {
  std::vector<double> means;
  for (std::size_t at = 0; at < sums_.size(); ++at) {
    means.push_back(counts_[at] > 0 ? sums_[at].*member / static_cast<double>(counts_[at])
                                    : std::numeric_limits<double>::quiet_NaN());
  }
  return means;
}

std::vector<double> SkillTable::rmse() const {
  std::vector<double> roots = means_of(&FieldSkill::squared_error);
  for (double& value : roots) value = std::sqrt(value);
  return roots;
}
std::vector<double> SkillTable::bias() const {
  return means_of(&FieldSkill::bias);
}
std::vector<double> SkillTable::relative_l2() const {
  return means_of(&FieldSkill::relative_l2);
}
std::vector<double> SkillTable::anomaly_correlation() const {
  return means_of(&FieldSkill::anomaly_correlation);
}

}  // namespace garonne::train
