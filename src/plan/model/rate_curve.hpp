// Seconds by size, from a few points of a measured or published curve.
#pragma once

#include <vector>

namespace garonne::plan {

struct RatePoint {
  double bytes = 0;
  double bytes_per_second = 0;

  bool operator==(const RatePoint&) const = default;
};

// Bytes ascend from point to point, rates do not fall, and neither do seconds, so that nothing
// takes longer than its parts one by one (RateCurve::refusal).
struct RateCurve {
  std::vector<RatePoint> points;

  bool empty() const { return points.empty(); }
  // Between two points seconds are on the straight line; up to the first they are its, beyond the
  // last the rate is its. Of no use without points.
  double seconds(double bytes) const;
  // The same for each of so many that share what carries it.
  RateCurve shared_by(int users) const;
  // What is wrong with the points, for people; null where nothing is.
  const char* refusal() const;

  bool operator==(const RateCurve&) const = default;
};

}  // namespace garonne::plan
