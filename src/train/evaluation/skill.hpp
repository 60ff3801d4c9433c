// How good forecasts of fields are: errors and correlations of anomalies, with the weight of every
// point named. No model, no file: numbers in, numbers out.
#pragma once

#include <cstdint>
#include <numbers>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/sphere_grid.hpp"
#include "data/fields/field_dataset.hpp"

namespace garonne::train {

inline constexpr double radians_per_degree = std::numbers::pi / 180;

// What the points of a field count in means over them.
//   cos-latitude  the cosine of the latitude (FourCastNet)
//   cell-area     the area between the middles to the neighbouring rows (WeatherBench 2)
//   quadrature    the weights that integrate polynomials over the sphere exactly
//   uniform       all the same
struct Weighting {
  std::string name;
  std::vector<double> rows;  // [points[0]], of mean 1
};
std::vector<std::string> weighting_names();

// `name` = auto: cell-area where rows are latitudes that the files tell, else uniform. Throws
// ConfigError (key "--weighting") for an unknown name, for weights of latitudes where rows are
// none, and for quadrature on a grid that has none (not of the whole sphere, or without its poles).
Weighting make_weighting(const std::string& name, const data::FieldDatasetInfo& info);

// Whether the first of two axes is latitudes that the files tell.
bool on_latitudes(const data::FieldDatasetInfo& info);
// The grid with an exact quadrature that has the rows of the data, from either pole; empty where
// there is none.
std::optional<SphereGrid> quadrature_grid(const data::FieldDatasetInfo& info);

// Of one forecast field against the truth; means are weighted, over the points where truth and
// climatology have values.
struct FieldSkill {
  std::int64_t points = 0;   // those; where there are none the rest means nothing
  double squared_error = 0;  // mean of (forecast − truth)²
  double bias = 0;           // mean of forecast − truth
  double relative_l2 = 0;    // ‖forecast − truth‖ / ‖truth‖
  // Correlation, about 0, of the anomalies forecast − climatology and truth − climatology; NaN
  // where one of them is 0 everywhere.
  double anomaly_correlation = 0;
};
// All [points…], first axis as the weights'.
FieldSkill field_skill(std::span<const float> forecast, std::span<const float> truth,
                       std::span<const float> climatology, const Weighting& weighting);

// Skill by source of forecasts, lead and channel, over samples that are added one by one.
class SkillTable {
 public:
  SkillTable(std::size_t sources, std::size_t leads, std::size_t channels);
  // A skill without points counts as no sample.
  void add(std::size_t source, std::size_t lead, std::size_t channel, const FieldSkill& skill);

  // All [sources, leads, channels]; NaN where nothing was added.
  std::vector<double> rmse() const;  // root of the mean over samples of squared errors
  std::vector<double> bias() const;  // means over samples, these three
  std::vector<double> relative_l2() const;
  std::vector<double> anomaly_correlation() const;

 private:
  std::vector<double> means_of(double FieldSkill::*member) const;
  std::size_t leads_;
  std::size_t channels_;
  std::vector<FieldSkill> sums_;
  std::vector<std::int64_t> counts_;
};

}  // namespace garonne::train
