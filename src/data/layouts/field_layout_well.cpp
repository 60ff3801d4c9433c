// The Well's files: groups `t0_fields`, `t1_fields` and `t2_fields` of scalars, vectors and tensors
// [trajectory, time, space…(, component(, component))], `dimensions` with the coordinates, and
// attributes that say which of these dimensions a field has.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/error.hpp"
#include "base/lower_case.hpp"
#include "data/layouts/field_layout.hpp"

namespace garonne::data {
namespace {

constexpr std::array field_groups = {"t0_fields", "t1_fields", "t2_fields"};
constexpr std::array well_latitude_names = {"theta", "latitude", "lat", "colatitude"};

bool recognises(const Hdf5File& file) {
  return file.has_group("dimensions") && file.has_group("t0_fields");
}

std::vector<double> read_coordinate(const Hdf5File& file, const std::string& axis) {
  const std::string name = "dimensions/" + axis;
  const Hdf5Attributes attributes = file.attributes(name);
  if (attributes.truth("sample_varying", false) || attributes.truth("time_varying", false)) {
    refuse_dataset(file, name, "the grid changes with sample or time, which is not read");
  }
  return read_line(file, name);
}

// Colatitude and longitude in radians to degrees; true where the axes are those of a sphere.
bool to_degrees(FieldFile& described) {
  const auto named = [&](std::size_t axis, const char* name) {
    return described.axes[axis] == name;
  };
  if (described.axes.size() != 2) return false;
  const bool latitude_first = std::any_of(well_latitude_names.begin(), well_latitude_names.end(),
                                          [&](const char* name) { return named(0, name); });
  if (!latitude_first) return false;
  const bool colatitude = named(0, "theta") || named(0, "colatitude");
  const double degrees = 180 / std::numbers::pi;
  std::vector<double>& rows = described.coordinates[0];
  std::vector<double>& columns = described.coordinates[1];
  const auto greatest = [](const std::vector<double>& values) {
    return std::abs(*std::max_element(values.begin(), values.end(), [](double one, double other) {
      return std::abs(one) < std::abs(other);
    }));
  };
  const bool radians = greatest(rows) < 3.2 && greatest(columns) < 6.3;
  for (double& value : rows) {
    if (radians) value *= degrees;
    if (colatitude) value = 90 - value;
  }
  for (double& value : columns) {
    if (radians) value *= degrees;
  }
  described.axes = {"latitude", "longitude"};
  return true;
}

// "periodic" where every boundary is.
std::string boundaries(const Hdf5File& file) {
  if (!file.has_group("boundary_conditions")) return "box";
  const std::vector<std::string> names = file.groups("boundary_conditions");
  for (const std::string& name : names) {
    const Hdf5Attributes attributes = file.attributes("boundary_conditions/" + name);
    const std::string kind = attributes.has("bc_type") ? attributes.text("bc_type") : "";
    if (lower_case(kind) != "periodic") return "box";
  }
  return names.empty() ? "box" : "periodic";
}

// The places of the components of one field, and its numbers of trajectories and frames.
void add_field(const Hdf5File& file, const std::string& field, int order, FieldFile& described,
               const std::vector<std::string>& dimensions) {
  const std::string name =
      fmt::format("{}/{}", field_groups[static_cast<std::size_t>(order)], field);
  const Hdf5Attributes attributes = file.attributes(name);
  const bool by_sample = attributes.truth("sample_varying", true);
  const bool by_time = attributes.truth("time_varying", true);
  if (attributes.has("dim_varying")) {
    for (const double varies : attributes.numbers("dim_varying")) {
      if (varies == 0) return;  // not a field on the whole grid
    }
  }
  const std::size_t space = dimensions.size();
  const std::size_t first = (by_sample ? 1U : 0U) + (by_time ? 1U : 0U);
  const Hdf5Dataset dataset =
      open_array(file, name, first + space + static_cast<std::size_t>(order),
                 fmt::format("[{}{}{}{}]", by_sample ? "trajectory, " : "", by_time ? "time, " : "",
                             fmt::join(dimensions, ", "), order > 0 ? ", component…" : ""));
  const std::vector<std::int64_t>& shape = dataset.shape();
  check_axes(file.path(), name, shape, first, dimensions, described.coordinates);
  const auto space_begin = shape.begin() + static_cast<std::ptrdiff_t>(first);
  const std::vector<std::int64_t> points(space_begin,
                                         space_begin + static_cast<std::ptrdiff_t>(space));
  if (described.points.empty()) {
    described.points = points;
    described.storage = storage_text(dataset);
  }
  if (points != described.points) {
    refuse_dataset(file, name,
                   fmt::format("its points are {}, those of other fields {}", shape_text(points),
                               shape_text(described.points)));
  }
  const auto agree = [&](std::int64_t& known, std::int64_t size, const char* what) {
    if (known == 0) known = size;
    if (known != size) {
      refuse_dataset(file, name, fmt::format("has {} {}, other fields {}", size, what, known));
    }
  };
  if (by_sample) agree(described.trajectories, shape[0], "trajectories");
  if (by_time) agree(described.frames, shape[by_sample ? 1 : 0], "frames");

  std::int64_t components = 1;
  for (std::size_t axis = first + space; axis < shape.size(); ++axis) {
    check_channel_count(file.path(), name, shape[axis]);
    components *= shape[axis];
  }
  check_channel_count(file.path(), name,
                      components + static_cast<std::int64_t>(described.channels.size()));
  FieldPlace place;
  place.dataset = name;
  place.trajectory_axis = by_sample ? 0 : -1;
  place.frame_axis = by_time ? (by_sample ? 1 : 0) : -1;
  place.space_axis = static_cast<int>(first);
  place.constant = !by_time;
  const int component_axis = static_cast<int>(first + space);
  const auto component = [&](std::int64_t index) {
    const auto at = static_cast<std::size_t>(index);
    return at < space ? dimensions[at] : fmt::format("{}", index);
  };
  if (order == 0) {
    place.channel = field;
    described.channels.push_back(place);
  }
  for (std::int64_t row = 0; order > 0 && row < shape[static_cast<std::size_t>(component_axis)];
       ++row) {
    place.fixed = {{component_axis, row}};
    place.channel = fmt::format("{}_{}", field, component(row));
    if (order == 1) described.channels.push_back(place);
    for (std::int64_t column = 0; order > 1 && column < shape.back(); ++column) {
      place.fixed = {{component_axis, row}, {component_axis + 1, column}};
      place.channel = fmt::format("{}_{}{}", field, component(row), component(column));
      described.channels.push_back(place);
    }
  }
}

void read_times(const Hdf5File& file, FieldFile& described) {
  const Hdf5Dataset time = file.dataset("dimensions/time");
  std::vector<double> times = time.read_all<double>(most_coordinates);
  if (time.shape().empty() || time.shape().size() > 2 || time.shape().back() != described.frames) {
    refuse_dataset(file, "dimensions/time",
                   fmt::format("its shape is {}, but fields have {} frames",
                               shape_text(time.shape()), described.frames));
  }
  // Trajectories may begin at other times; their steps are those of the first one.
  times.resize(static_cast<std::size_t>(described.frames));
  described.times = std::move(times);
}

FieldFile describe(const Hdf5File& file) {
  FieldFile described;
  described.trajectories = 0;
  const std::vector<std::string> dimensions = file.attributes("dimensions").texts("spatial_dims");
  described.axes = dimensions;
  if (dimensions.empty() ||
      std::find(dimensions.begin(), dimensions.end(), "") != dimensions.end()) {
    throw IoError(file.path(), "attribute \"spatial_dims\" of \"dimensions\" lacks a name");
  }
  for (const std::string& axis : dimensions) {
    described.coordinates.push_back(read_coordinate(file, axis));
  }
  for (int order = 0; order < static_cast<int>(field_groups.size()); ++order) {
    const std::string group = field_groups[static_cast<std::size_t>(order)];
    if (!file.has_group(group)) continue;
    for (const std::string& field : file.datasets(group)) {
      add_field(file, field, order, described, dimensions);
    }
  }
  if (described.channels.empty()) throw IoError(file.path(), "there is no field on the whole grid");
  described.trajectories = std::max<std::int64_t>(described.trajectories, 1);
  described.frames = std::max<std::int64_t>(described.frames, 1);
  if (file.has_dataset("dimensions/time")) read_times(file, described);
  described.grid = boundaries(file);
  if (to_degrees(described)) {
    set_sphere_grid(described);
  }
  described.statistics = find_beside(file.path(), "stats.yaml");
  if (described.statistics.empty())
    described.statistics = find_beside(file.path(), "../stats.yaml");
  return described;
}

}  // namespace

const FieldLayout& well_layout() {
  static const FieldLayout layout = {
      "well", "The Well: groups \"dimensions\" and \"t0_fields\" to \"t2_fields\"", recognises,
      describe, /*continues=*/false};
  return layout;
}

}  // namespace garonne::data
