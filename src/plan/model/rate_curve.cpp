#include "plan/model/rate_curve.hpp"

#include <cstddef>
#include <limits>

namespace garonne::plan {
namespace {

double point_seconds(const RatePoint& point) {
  return point.bytes / point.bytes_per_second;
}

}  // namespace

double RateCurve::seconds(double bytes) const {
  if (bytes <= points.front().bytes) return point_seconds(points.front());
  for (std::size_t k = 1; k < points.size(); ++k) {
    if (bytes > points[k].bytes) continue;
    const double before = point_seconds(points[k - 1]);
    const double share = (bytes - points[k - 1].bytes) / (points[k].bytes - points[k - 1].bytes);
    return before + share * (point_seconds(points[k]) - before);
  }
  return bytes / points.back().bytes_per_second;
}

RateCurve RateCurve::shared_by(int users) const {
  RateCurve shared = *this;
  for (RatePoint& point : shared.points) point.bytes_per_second /= users;
  return shared;
}

const char* RateCurve::refusal() const {
  constexpr double most = std::numeric_limits<double>::max();
  for (const RatePoint& point : points) {
    for (const double number : {point.bytes, point.bytes_per_second}) {
      if (!(number > 0 && number <= most)) return "has a size or rate that is not above 0";
    }
  }
  for (std::size_t k = 1; k < points.size(); ++k) {
    const RatePoint& before = points[k - 1];
    const RatePoint& point = points[k];
    if (point.bytes <= before.bytes) return "has sizes that do not ascend";
    if (point.bytes_per_second < before.bytes_per_second) return "has a rate that falls with size";
    if (point_seconds(point) < point_seconds(before))
      return "has a larger size that takes less time";
  }
  return nullptr;
}

}  // namespace garonne::plan
