// What share of a device's peak matrix products reach, by their shape.
#pragma once

#include <cstdint>
#include <vector>

namespace garonne::plan {

// rows × depth times depth × columns; nothing where there is no product.
struct ProductSize {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t depth = 0;

  bool operator==(const ProductSize&) const = default;
};

struct ProductPoint {
  ProductSize size;
  double efficiency = 1;  // above 0 and at most 1

  bool operator==(const ProductPoint&) const = default;
};

// A surface through measured or published points.
struct ProductEfficiency {
  std::vector<ProductPoint> points;
  // Of products of which a size is no multiple of it, the share is so many times that of others.
  std::int64_t alignment = 1;
  double unaligned = 1;

  // Between the points by distance: the mean of their shares, each weighted by one over the square
  // of its distance in powers of two of the three sizes; at a point its own. `otherwise` is the
  // share where there are no points, or no product.
  double of(const ProductSize& size, double otherwise) const;

  bool operator==(const ProductEfficiency&) const = default;
};

}  // namespace garonne::plan
