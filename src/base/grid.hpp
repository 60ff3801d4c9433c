// The grid of ranks as a value: sizes of the three axes, the order of ranks, groups along an axis.
#pragma once

#include <string>
#include <vector>

namespace garonne {

// Sizes of the axes, each at least 1.
struct GridShape {
  int data = 1;
  int pipeline = 1;
  int tensor = 1;

  int ranks() const { return data * pipeline * tensor; }
  bool operator==(const GridShape&) const = default;
};

// Where a rank stands on each axis, from 0.
struct Coordinates {
  int data = 0;
  int pipeline = 0;
  int tensor = 0;

  bool operator==(const Coordinates&) const = default;
};

enum class Axis { Data, Pipeline, Tensor };

// rank = tensor + T * (data + D * pipeline): tensor peers talk most and are neighbours, hence on
// one host; then data peers, then pipeline stages.
class Grid {
 public:
  // One rank alone.
  Grid() = default;
  // Throws ConfigError when a size is below 1 or the number of ranks is no int.
  explicit Grid(GridShape shape);

  const GridShape& shape() const { return shape_; }
  int ranks() const { return shape_.ranks(); }
  int size(Axis axis) const;

  // Both throw InternalError for what lies outside the grid.
  Coordinates coordinates_of(int rank) const;
  int rank_of(Coordinates coordinates) const;

  // Ranks that differ from `rank` at most along `axis`, in order of that axis; `rank` is one of
  // them, at the index of its own coordinate.
  std::vector<int> group(Axis axis, int rank) const;

 private:
  GridShape shape_;
};

// "data", "pipeline", "tensor".
std::string to_string(Axis axis);
// "data 2 × pipeline 1 × tensor 1".
std::string to_string(const GridShape& shape);
// "data 1, pipeline 0, tensor 0".
std::string to_string(const Coordinates& coordinates);

}  // namespace garonne
