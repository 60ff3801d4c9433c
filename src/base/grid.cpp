#include "base/grid.hpp"

#include <cstdint>
#include <limits>

#include "base/error.hpp"

namespace garonne {
namespace {

void check_size(const char* key, int size) {
  if (size < 1) throw ConfigError(key, std::to_string(size), "an axis has at least one rank");
}

int& along(Coordinates& coordinates, Axis axis) {
  switch (axis) {
    case Axis::Data:
      return coordinates.data;
    case Axis::Pipeline:
      return coordinates.pipeline;
    case Axis::Tensor:
      return coordinates.tensor;
  }
  throw InternalError("unknown axis of the grid");
}

}  // namespace

Grid::Grid(GridShape shape) : shape_(shape) {
  check_size("grid.data", shape.data);
  check_size("grid.pipeline", shape.pipeline);
  check_size("grid.tensor", shape.tensor);
  constexpr std::int64_t most = std::numeric_limits<int>::max();
  const std::int64_t plane = std::int64_t{shape.data} * shape.tensor;
  if (plane > most || plane * shape.pipeline > most) {
    throw ConfigError("the grid " + to_string(shape) + " has more ranks than MPI can number");
  }
}

int Grid::size(Axis axis) const {
  switch (axis) {
    case Axis::Data:
      return shape_.data;
    case Axis::Pipeline:
      return shape_.pipeline;
    case Axis::Tensor:
      return shape_.tensor;
  }
  throw InternalError("unknown axis of the grid");
}

Coordinates Grid::coordinates_of(int rank) const {
  expect(rank >= 0 && rank < ranks(),
         "rank " + std::to_string(rank) + " is outside the grid " + to_string(shape_));
  const int plane = rank / shape_.tensor;
  return {
      .data = plane % shape_.data, .pipeline = plane / shape_.data, .tensor = rank % shape_.tensor};
}

int Grid::rank_of(Coordinates at) const {
  const bool inside = at.data >= 0 && at.data < shape_.data && at.pipeline >= 0 &&
                      at.pipeline < shape_.pipeline && at.tensor >= 0 && at.tensor < shape_.tensor;
  expect(inside, "coordinates (" + to_string(at) + ") are outside the grid " + to_string(shape_));
  return at.tensor + shape_.tensor * (at.data + shape_.data * at.pipeline);
}

std::vector<int> Grid::group(Axis axis, int rank) const {
  Coordinates at = coordinates_of(rank);
  std::vector<int> members;
  for (int place = 0; place < size(axis); ++place) {
    along(at, axis) = place;
    members.push_back(rank_of(at));
  }
  return members;
}

std::string to_string(Axis axis) {
  switch (axis) {
    case Axis::Data:
      return "data";
    case Axis::Pipeline:
      return "pipeline";
    case Axis::Tensor:
      return "tensor";
  }
  throw InternalError("unknown axis of the grid");
}

std::string to_string(const GridShape& shape) {
  return "data " + std::to_string(shape.data) + " × pipeline " + std::to_string(shape.pipeline) +
         " × tensor " + std::to_string(shape.tensor);
}

std::string to_string(const Coordinates& coordinates) {
  return "data " + std::to_string(coordinates.data) + ", pipeline " +
         std::to_string(coordinates.pipeline) + ", tensor " + std::to_string(coordinates.tensor);
}

}  // namespace garonne
