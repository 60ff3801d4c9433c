#include "train/bench/link_curve.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>

#include "base/median.hpp"

namespace garonne::train {
namespace {

// seconds = latencies · latency + parts · curve(bytes).
struct Weights {
  double latencies = 1;
  double parts = 1;
};

Weights weights_of(const dist::LinkSeries& series) {
  if (series.pattern == dist::LinkPattern::Message) return {};
  const auto members = static_cast<double>(series.members.size());
  return {2 * (members - 1), 2 * (members - 1) / members};
}

// From large to small: a larger one takes no less, at no smaller rate.
void order(std::vector<plan::RatePoint>& points) {
  for (std::size_t k = points.size() - 1; k-- > 0;) {
    const plan::RatePoint& larger = points[k + 1];
    plan::RatePoint& point = points[k];
    const double slowest = larger.bytes / larger.bytes_per_second;
    const double seconds = std::min(point.bytes / point.bytes_per_second, slowest);
    point.bytes_per_second = std::min(point.bytes / seconds, larger.bytes_per_second);
  }
}

}  // namespace

double curve_error(const plan::RateCurve& curve, const std::vector<dist::LinkSeries>& series,
                   double latency_seconds) {
  std::vector<double> errors;
  for (const dist::LinkSeries& one : series) {
    const Weights weights = weights_of(one);
    for (const dist::LinkSample& sample : one.samples) {
      const double predicted = weights.latencies * latency_seconds +
                               weights.parts * curve.seconds(static_cast<double>(sample.bytes));
      errors.push_back(std::abs(predicted / sample.median_seconds - 1));
    }
  }
  return median(errors);
}

plan::RateCurve link_curve(const std::vector<dist::LinkSeries>& series, const dist::LinkFit& fit) {
  constexpr double good = 0.01;
  constexpr double better = 0.9;
  if (fit.median_error < good) return {};
  std::map<std::int64_t, std::vector<double>> seconds;  // of the curve, by size
  for (const dist::LinkSeries& one : series) {
    const Weights weights = weights_of(one);
    for (const dist::LinkSample& sample : one.samples) {
      seconds[sample.bytes].push_back(
          (sample.median_seconds - weights.latencies * fit.latency_seconds) / weights.parts);
    }
  }
  plan::RateCurve curve;
  for (const auto& [bytes, all] : seconds) {
    // Of the smallest the latency is all there is.
    const double usual = median(all);
    if (usual > 0)
      curve.points.push_back({static_cast<double>(bytes), static_cast<double>(bytes) / usual});
  }
  if (curve.points.size() < 2) return {};
  order(curve.points);
  if (curve_error(curve, series, fit.latency_seconds) > better * fit.median_error) return {};
  return curve;
}

}  // namespace garonne::train
