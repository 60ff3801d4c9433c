// netCDF-4 files, read as the HDF5 that they are: every variable on the latitudes and longitudes of
// the file is a channel, or one a level. Dimensions are known by the attributes of their
// coordinates (CF Conventions 1.11, chapters 2.5, 4 and 8.1); packed and missing values are taken
// as those say.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <tuple>

#include "base/error.hpp"
#include "base/printable.hpp"
#include "data/layouts/field_layout.hpp"

namespace garonne::data {
namespace {

enum class Role { Time, Row, Column, Member, Level };

// What netCDF writes where nothing was written, unless the file says otherwise.
constexpr double default_fill_float = 9.9692099683868690e+36;
constexpr double default_fill_int16 = -32767;
constexpr double default_fill_int32 = -2147483647;

std::string text_of(const Hdf5Attributes& attributes, const char* name) {
  // A number where a text is usual is not what tells a dimension.
  if (!attributes.has_text(name)) return "";
  const std::vector<std::string> texts = attributes.texts(name);
  return texts.empty() ? "" : texts[0];
}

template <std::size_t count>
bool one_of(const std::string& text, const std::array<const char*, count>& known) {
  return std::find(known.begin(), known.end(), text) != known.end();
}

Role role_of(const Hdf5File& file, const std::string& dimension) {
  static constexpr std::array north = {"degrees_north", "degree_north", "degree_N",
                                       "degrees_N",     "degreeN",      "degreesN"};
  static constexpr std::array east = {"degrees_east", "degree_east", "degree_E",
                                      "degrees_E",    "degreeE",     "degreesE"};
  static constexpr std::array members = {"realization", "number", "member", "ensemble", "ens"};
  const Hdf5Attributes attributes = file.attributes(dimension);
  const std::string units = text_of(attributes, "units");
  const std::string standard = text_of(attributes, "standard_name");
  const std::string axis = text_of(attributes, "axis");
  if (is_cf_time(units) || standard == "time" || axis == "T") return Role::Time;
  if (one_of(units, north) || standard == "latitude" || standard == "projection_y_coordinate" ||
      axis == "Y") {
    return Role::Row;
  }
  if (one_of(units, east) || standard == "longitude" || standard == "projection_x_coordinate" ||
      axis == "X") {
    return Role::Column;
  }
  if (standard == "realization" || one_of(dimension, members)) return Role::Member;
  // Some files name their dimensions and say no more.
  if (dimension == "time") return Role::Time;
  if (dimension == "lat" || dimension == "latitude") return Role::Row;
  if (dimension == "lon" || dimension == "longitude") return Role::Column;
  return Role::Level;
}

// A variable on a grid: its dimensions and where each role is among them (-1 = nowhere).
struct Variable {
  std::string name;
  std::vector<std::string> dimensions;
  std::map<Role, int> axes;
  int axis(Role role) const {
    const auto found = axes.find(role);
    return found == axes.end() ? -1 : found->second;
  }
  std::string dimension(Role role) const {
    const int place = axis(role);
    return place < 0 ? "" : dimensions[static_cast<std::size_t>(place)];
  }
};

// Empty for what is not a variable on a grid of rows and columns.
std::optional<Variable> read_variable(const Hdf5File& file, const std::string& name) {
  Variable variable;
  variable.name = name;
  variable.dimensions = file.dimension_scales(name);
  for (std::size_t axis = 0; axis < variable.dimensions.size(); ++axis) {
    const std::string& dimension = variable.dimensions[axis];
    if (dimension.empty()) return std::nullopt;
    const auto [place, fresh] =
        variable.axes.emplace(role_of(file, dimension), static_cast<int>(axis));
    if (!fresh) return std::nullopt;
  }
  const int row = variable.axis(Role::Row);
  const int column = variable.axis(Role::Column);
  if (row < 0 || column < 0) return std::nullopt;
  const int last = static_cast<int>(variable.dimensions.size()) - 1;
  if (row != last - 1 || column != last) {
    refuse_dataset(file, name,
                   fmt::format("its dimensions are ({}); the last two should be latitude, then "
                               "longitude: its axes are swapped",
                               printable(fmt::format("{}", fmt::join(variable.dimensions, ", ")))));
  }
  return variable;
}

std::vector<double> bounds_of(const Hdf5Attributes& attributes, const char* name) {
  return attributes.has(name) ? attributes.numbers(name) : std::vector<double>();
}

// Packing and missing values, of the variable's attributes.
void read_packing(const Hdf5Dataset& dataset, const Hdf5Attributes& attributes, FieldPlace& place) {
  if (attributes.has("scale_factor")) place.scale = attributes.number("scale_factor");
  if (attributes.has("add_offset")) place.offset = attributes.number("add_offset");
  for (const char* name : {"_FillValue", "missing_value"}) {
    for (const double value : bounds_of(attributes, name)) place.missing.push_back(value);
  }
  if (!attributes.has("_FillValue")) {
    const NumberType type = dataset.type();
    if (type.family == NumberFamily::Floating) {
      // As HDF5 widens the float of that name, and the double itself.
      place.missing.push_back(static_cast<double>(static_cast<float>(default_fill_float)));
      place.missing.push_back(default_fill_float);
    } else if (type.family == NumberFamily::Signed && type.bytes == 2) {
      place.missing.push_back(default_fill_int16);
    } else if (type.family == NumberFamily::Signed && type.bytes == 4) {
      place.missing.push_back(default_fill_int32);
    }
  }
  const std::vector<double> range = bounds_of(attributes, "valid_range");
  if (range.size() == 2) std::tie(place.least, place.greatest) = std::tuple(range[0], range[1]);
  if (attributes.has("valid_min")) place.least = attributes.number("valid_min");
  if (attributes.has("valid_max")) place.greatest = attributes.number("valid_max");
}

void add_channels(const Hdf5File& file, const Variable& variable, FieldFile& described) {
  const Hdf5Dataset dataset = open_array(
      file, variable.name, variable.dimensions.size(),
      fmt::format("({})", printable(fmt::format("{}", fmt::join(variable.dimensions, ", ")))));
  FieldPlace place;
  place.dataset = variable.name;
  place.trajectory_axis = variable.axis(Role::Member);
  place.frame_axis = variable.axis(Role::Time);
  place.space_axis = variable.axis(Role::Row);
  place.constant = place.frame_axis < 0;
  read_packing(dataset, file.attributes(variable.name), place);
  check_axes(file, variable.name, dataset.shape(), static_cast<std::size_t>(place.space_axis),
             described.axes, described.coordinates);
  if (place.frame_axis >= 0) {
    const std::int64_t frames = dataset.shape()[static_cast<std::size_t>(place.frame_axis)];
    if (frames != described.frames) {
      refuse_dataset(file, variable.name,
                     fmt::format("has {} frames where \"{}\" has {} times", frames,
                                 printable(variable.dimension(Role::Time)), described.frames));
    }
  }
  if (place.trajectory_axis >= 0) {
    described.trajectories = dataset.shape()[static_cast<std::size_t>(place.trajectory_axis)];
  }
  if (described.storage.empty() && !place.constant) described.storage = storage_text(dataset);
  const int level = variable.axis(Role::Level);
  const std::int64_t levels = level < 0 ? 1 : dataset.shape()[static_cast<std::size_t>(level)];
  check_channel_count(file, variable.name,
                      levels + static_cast<std::int64_t>(described.channels.size()));
  std::vector<double> values;
  if (levels > 1 && file.dataset(variable.dimension(Role::Level)).shape().size() == 1) {
    values = read_line(file, variable.dimension(Role::Level));
  }
  for (std::int64_t number = 0; number < levels; ++number) {
    place.channel = variable.name;
    if (level >= 0) place.fixed = {{level, number}};
    if (levels > 1) {
      const double value = static_cast<std::int64_t>(values.size()) == levels
                               ? values[static_cast<std::size_t>(number)]
                               : static_cast<double>(number);
      place.channel = fmt::format("{}_{:g}", variable.name, value);
    }
    described.channels.push_back(place);
  }
}

void read_times(const Hdf5File& file, const std::string& name, FieldFile& described) {
  described.times = read_line(file, name);
  described.frames = static_cast<std::int64_t>(described.times.size());
  const Hdf5Attributes attributes = file.attributes(name);
  const std::string units = text_of(attributes, "units");
  if (!is_cf_time(units)) return;
  const std::string calendar_name =
      attributes.has("calendar") ? attributes.text("calendar") : "standard";
  const std::optional<Calendar> calendar = calendar_named(calendar_name);
  if (!calendar) {
    refuse_dataset(file, name,
                   fmt::format("the calendar \"{}\" is not known", printable(calendar_name)));
  }
  const std::optional<CfTime> time = parse_cf_time(units, *calendar);
  if (!time) {
    refuse_dataset(file, name,
                   fmt::format("units \"{}\" are no definite time in the calendar \"{}\"",
                               printable(units), printable(calendar_name)));
  }
  for (double& value : described.times) value = value * time->unit_seconds + time->origin_seconds;
  described.dated = true;
  described.calendar = *calendar;
}

bool recognises(const Hdf5File& file) {
  for (const std::string& name : file.datasets()) {
    if (!file.dimension_scales(name).empty()) return true;
  }
  return false;
}

// Latitude, longitude and time dimensions.
using Grid = std::tuple<std::string, std::string, std::string>;

FieldFile describe(const Hdf5File& file) {
  std::vector<Variable> variables;
  std::map<Grid, int> grids;
  std::map<Grid, int> constant_grids;
  const auto grid_of = [](const Variable& variable) {
    return Grid(variable.dimension(Role::Row), variable.dimension(Role::Column),
                variable.dimension(Role::Time));
  };
  for (const std::string& name : file.datasets()) {
    std::optional<Variable> variable = read_variable(file, name);
    if (!variable) continue;
    ++(variable->axis(Role::Time) >= 0 ? grids : constant_grids)[grid_of(*variable)];
    variables.push_back(std::move(*variable));
  }
  // Orography and the like often have a file of their own.
  if (grids.empty()) grids = std::move(constant_grids);
  if (grids.empty()) {
    throw IoError(file.path(),
                  fmt::format("no variable with the dimensions (time, latitude, "
                              "longitude) among the datasets {}",
                              printable(fmt::format("{}", fmt::join(file.datasets(), ", ")), 600)));
  }
  // The grid that most variables are on.
  const Grid grid =
      std::max_element(grids.begin(), grids.end(), [](const auto& one, const auto& other) {
        return one.second < other.second;
      })->first;
  const auto& [row, column, time] = grid;
  FieldFile described;
  described.axes = {row, column};
  described.coordinates = {read_line(file, row), read_line(file, column)};
  described.points = {static_cast<std::int64_t>(described.coordinates[0].size()),
                      static_cast<std::int64_t>(described.coordinates[1].size())};
  if (!time.empty()) read_times(file, time, described);
  for (const Variable& variable : variables) {
    const bool same_grid =
        variable.dimension(Role::Row) == row && variable.dimension(Role::Column) == column;
    const std::string of_variable = variable.dimension(Role::Time);
    if (same_grid && (of_variable == time || of_variable.empty())) {
      add_channels(file, variable, described);
    }
  }
  const std::string units = text_of(file.attributes(row), "units");
  const bool degrees = units.find("deg") != std::string::npos;
  described.grid =
      degrees ? sphere_grid_of(described.coordinates[0], described.coordinates[1]) : "regional";
  if (degrees) described.axes = {"latitude", "longitude"};
  return described;
}

}  // namespace

const FieldLayout& netcdf_layout() {
  static const FieldLayout layout = {"netcdf",
                                     "netCDF-4: variables (time, [level,] latitude, longitude)",
                                     recognises,
                                     describe,
                                     /*continues=*/false,
                                     /*joins=*/true};
  return layout;
}

}  // namespace garonne::data
