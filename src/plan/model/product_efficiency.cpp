#include "plan/model/product_efficiency.hpp"

#include <cmath>

namespace garonne::plan {
namespace {

double square(double value) {
  return value * value;
}

double powers_of_two(std::int64_t size) {
  return std::log2(static_cast<double>(size));
}

}  // namespace

double ProductEfficiency::of(const ProductSize& size, double otherwise) const {
  if (size.rows < 1 || size.columns < 1 || size.depth < 1) return otherwise;
  const bool aligned =
      size.rows % alignment == 0 && size.columns % alignment == 0 && size.depth % alignment == 0;
  const double factor = aligned ? 1 : unaligned;
  if (points.empty()) return otherwise * factor;
  double weights = 0;
  double sum = 0;
  for (const ProductPoint& point : points) {
    const double distance =
        square(powers_of_two(size.rows) - powers_of_two(point.size.rows)) +
        square(powers_of_two(size.columns) - powers_of_two(point.size.columns)) +
        square(powers_of_two(size.depth) - powers_of_two(point.size.depth));
    if (distance == 0) return point.efficiency * factor;
    weights += 1 / distance;
    sum += point.efficiency / distance;
  }
  return sum / weights * factor;
}

}  // namespace garonne::plan
