#include "data/layouts/cf_source.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <tuple>

#include "base/error.hpp"
#include "base/lower_case.hpp"
#include "base/printable.hpp"

namespace garonne::data {
namespace {

enum class Role { Time, Row, Column, Member, Level };

// What netCDF writes where nothing was written, unless the file says otherwise.
constexpr double default_fill_float = 9.9692099683868690e+36;
constexpr double default_fill_int16 = -32767;
constexpr double default_fill_int32 = -2147483647;

[[noreturn]] void refuse(const CfSource& source, const std::string& name, const std::string& what) {
  throw IoError(source.path(), fmt::format("dataset \"{}\": {}", printable(name), what));
}

template <std::size_t count>
bool one_of(const std::string& text, const std::array<const char*, count>& known) {
  return std::find(known.begin(), known.end(), text) != known.end();
}

constexpr std::array latitude_names = {"lat", "latitude"};
constexpr std::array longitude_names = {"lon", "longitude"};

Role role_of(const CfSource& source, const std::string& dimension) {
  static constexpr std::array north = {"degrees_north", "degree_north", "degree_N",
                                       "degrees_N",     "degreeN",      "degreesN"};
  static constexpr std::array east = {"degrees_east", "degree_east", "degree_E",
                                      "degrees_E",    "degreeE",     "degreesE"};
  static constexpr std::array members = {"realization", "number", "member", "ensemble", "ens"};
  const std::string units = source.text(dimension, "units");
  const std::string standard = source.text(dimension, "standard_name");
  const std::string axis = source.text(dimension, "axis");
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
  const std::string name = lower_case(dimension);
  if (name == "time") return Role::Time;
  if (one_of(name, latitude_names)) return Role::Row;
  if (one_of(name, longitude_names)) return Role::Column;
  return Role::Level;
}

// Whether all lie in [least, greatest] and ascend or descend: dimensions without coordinates are
// zeros in netCDF.
bool ordered_within(const std::vector<double>& values, double least, double greatest) {
  if (values.size() < 2) return false;
  const bool ascends = values[1] > values[0];
  for (std::size_t index = 0; index < values.size(); ++index) {
    if (!(values[index] >= least && values[index] <= greatest)) return false;
    if (index == 0) continue;
    const double before = values[index - 1];
    if (ascends ? values[index] <= before : values[index] >= before) return false;
  }
  return true;
}

// Whether rows and columns are latitudes and longitudes in degrees. Where no units say so, names
// do, for numbers that can be; an axis alone does where the numbers are those of a whole globe.
bool on_degrees(const CfSource& source, const std::string& row, const std::string& column,
                const std::vector<std::vector<double>>& coordinates) {
  const auto says_degrees = [](const std::string& units) {
    return units.find("deg") != std::string::npos || units.find("°") != std::string::npos;
  };
  const std::string units = source.text(row, "units");
  if (!units.empty()) return says_degrees(units);
  const std::string of_columns = source.text(column, "units");
  if (!of_columns.empty() && !says_degrees(of_columns)) return false;
  // A row of longitudes may begin anywhere, so that those are only bounded.
  const auto [west, east] = std::minmax_element(coordinates[1].begin(), coordinates[1].end());
  if (!ordered_within(coordinates[0], -90, 90) || *west < -360 || *east > 720 || *west == *east) {
    return false;
  }
  const bool named =
      one_of(lower_case(row), latitude_names) || source.text(row, "standard_name") == "latitude";
  return named || sphere_grid_of(coordinates[0], coordinates[1]).grid != "regional";
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

// Its dimensions as a layout wants them, for people.
std::string order_of(const Variable& variable) {
  std::vector<std::string> order;
  for (const Role role : {Role::Member, Role::Time, Role::Level, Role::Row, Role::Column}) {
    if (variable.axis(role) >= 0) order.push_back(variable.dimension(role));
  }
  return fmt::format("{}", fmt::join(order, ","));
}

std::string dimensions_text(const Variable& variable) {
  return fmt::format("({})", printable(fmt::format("{}", fmt::join(variable.dimensions, ", "))));
}

// Empty for what is not a variable on a grid of rows and columns; what is one and still cannot be a
// channel is added to `left_out`.
std::optional<Variable> read_variable(const CfSource& source, const std::string& name,
                                      std::vector<LeftOutVariable>& left_out) {
  Variable variable;
  variable.name = name;
  variable.dimensions = source.dimensions(name);
  bool alone = true;  // every dimension in its role
  for (std::size_t axis = 0; axis < variable.dimensions.size(); ++axis) {
    const std::string& dimension = variable.dimensions[axis];
    if (dimension.empty()) return std::nullopt;
    alone =
        variable.axes.emplace(role_of(source, dimension), static_cast<int>(axis)).second && alone;
  }
  const int row = variable.axis(Role::Row);
  const int column = variable.axis(Role::Column);
  if (row < 0 || column < 0) return std::nullopt;
  if (!alone) {
    left_out.push_back({printable(name), fmt::format("two of its dimensions {} are of one kind",
                                                     dimensions_text(variable))});
    return std::nullopt;
  }
  const int last = static_cast<int>(variable.dimensions.size()) - 1;
  if (source.transposes() && row == last && column == last - 1) return variable;
  if (row != last - 1 || column != last) {
    refuse(
        source, name,
        fmt::format("its dimensions are {}; the last two should be latitude, then longitude: its "
                    "axes are swapped; `ncpdq -a {}` of NCO puts them in order, and in a Zarr "
                    "store such arrays are read",
                    dimensions_text(variable), printable(order_of(variable))));
  }
  return variable;
}

// Exactly one; empty where there is no such attribute.
std::optional<double> number_of(const CfSource& source, const std::string& name,
                                const char* attribute) {
  const std::vector<double> all = source.numbers(name, attribute);
  if (all.empty()) return std::nullopt;
  if (all.size() == 1) return all[0];
  refuse(source, name, fmt::format("attribute \"{}\" is not a single value", attribute));
}

// Of integers whose attribute `_Unsigned` says that they are of the other sign; as xarray and
// netCDF4 for Python take it.
double wrap_of(const CfSource& source, const std::string& name, const NumberType& type) {
  const std::string said = lower_case(source.text(name, "_Unsigned"));
  const double range = std::ldexp(1.0, static_cast<int>(8 * type.bytes));
  if (said == "true" && type.family == NumberFamily::Signed) return range;
  return said == "false" && type.family == NumberFamily::Unsigned ? -range : 0;
}

// Packing and missing values, of the variable's attributes.
void read_packing(const CfSource& source, const std::string& name, const CfArray& array,
                  FieldPlace& place) {
  place.scale = number_of(source, name, "scale_factor").value_or(1);
  place.offset = number_of(source, name, "add_offset").value_or(0);
  for (const char* attribute : {"_FillValue", "missing_value"}) {
    for (const double value : source.numbers(name, attribute)) place.missing.push_back(value);
  }
  if (array.fill) {
    place.missing.push_back(*array.fill);
  } else if (source.numbers(name, "_FillValue").empty()) {
    if (array.type.family == NumberFamily::Floating) {
      // As HDF5 widens the float of that name, and the double itself.
      place.missing.push_back(static_cast<double>(static_cast<float>(default_fill_float)));
      place.missing.push_back(default_fill_float);
    } else if (array.type.family == NumberFamily::Signed && array.type.bytes == 2) {
      place.missing.push_back(default_fill_int16);
    } else if (array.type.family == NumberFamily::Signed && array.type.bytes == 4) {
      place.missing.push_back(default_fill_int32);
    }
  }
  const std::vector<double> range = source.numbers(name, "valid_range");
  if (range.size() == 2) std::tie(place.least, place.greatest) = std::tuple(range[0], range[1]);
  place.least = number_of(source, name, "valid_min").value_or(place.least);
  place.greatest = number_of(source, name, "valid_max").value_or(place.greatest);
  place.wrap = wrap_of(source, name, array.type);
  if (place.wrap == 0) return;
  // These are told in the type that is stored.
  for (double& value : place.missing) value = place.unwrapped(value);
  if (place.least > no_least) place.least = place.unwrapped(place.least);
  if (place.greatest < no_greatest) place.greatest = place.unwrapped(place.greatest);
}

// What it says of itself, where that can be a name; converters write "unknown" for none.
std::string name_in(const CfSource& source, const std::string& name, const char* attribute) {
  constexpr std::size_t most = 80;
  std::string text = name.empty() ? "" : source.text(name, attribute);
  return text.size() > most || text == "unknown" ? "" : text;
}

void add_channels(const CfSource& source, const Variable& variable, FieldFile& described) {
  const CfArray array =
      source.array(variable.name, variable.dimensions.size(), dimensions_text(variable));
  FieldPlace place;
  place.dataset = variable.name;
  place.trajectory_axis = variable.axis(Role::Member);
  place.frame_axis = variable.axis(Role::Time);
  place.space_axis = std::min(variable.axis(Role::Row), variable.axis(Role::Column));
  place.transposed = variable.axis(Role::Column) < variable.axis(Role::Row);
  place.constant = place.frame_axis < 0;
  read_packing(source, variable.name, array, place);
  place.units = source.text(variable.name, "units");
  place.standard_name = name_in(source, variable.name, "standard_name");
  const std::string long_name = name_in(source, variable.name, "long_name");
  std::vector<std::string> axes = described.axes;
  std::vector<std::vector<double>> coordinates = described.coordinates;
  if (place.transposed) {
    std::swap(axes[0], axes[1]);
    std::swap(coordinates[0], coordinates[1]);
  }
  check_axes(source.path(), variable.name, array.shape, static_cast<std::size_t>(place.space_axis),
             axes, coordinates);
  if (place.frame_axis >= 0) {
    const std::int64_t frames = array.shape[static_cast<std::size_t>(place.frame_axis)];
    if (frames != described.frames) {
      refuse(source, variable.name,
             fmt::format("has {} frames where \"{}\" has {} times", frames,
                         printable(variable.dimension(Role::Time)), described.frames));
    }
  }
  if (place.trajectory_axis >= 0) {
    described.trajectories = array.shape[static_cast<std::size_t>(place.trajectory_axis)];
  }
  if (described.storage.empty() && !place.constant) described.storage = array.storage;
  const int level = variable.axis(Role::Level);
  const std::int64_t levels = level < 0 ? 1 : array.shape[static_cast<std::size_t>(level)];
  if (levels > 1 && lower_case(variable.dimension(Role::Level)) == "expver") {
    refuse(
        source, variable.name,
        "its dimension \"expver\" has the final and the preliminary ERA5, each of times that the "
        "other lacks; put them together first (xarray: ds.sel(expver=1).combine_first("
        "ds.sel(expver=5)), without the coordinate expver)");
  }
  check_channel_count(source.path(), variable.name,
                      levels + static_cast<std::int64_t>(described.channels.size()));
  std::vector<double> values;
  const std::string level_name = variable.dimension(Role::Level);
  if (levels > 1 && source.has(level_name)) values = source.line(level_name);
  std::string level_units = name_in(source, level_name, "units");
  if (!level_units.empty()) level_units.insert(0, " ");
  for (std::int64_t number = 0; number < levels; ++number) {
    place.channel = variable.name;
    place.long_name = long_name;
    if (level >= 0) place.fixed = {{level, number}};
    if (levels > 1) {
      const double value = static_cast<std::int64_t>(values.size()) == levels
                               ? values[static_cast<std::size_t>(number)]
                               : static_cast<double>(number);
      place.channel = fmt::format("{}_{:g}", variable.name, value);
      if (!long_name.empty()) {
        place.long_name = fmt::format("{} at {} {:g}{}", long_name, level_name, value, level_units);
      }
    }
    described.channels.push_back(place);
  }
}

void read_times(const CfSource& source, const std::string& name, FieldFile& described) {
  described.times = source.line(name);
  described.frames = static_cast<std::int64_t>(described.times.size());
  const auto& times = described.times;
  if (times.size() > 1 &&
      std::adjacent_find(times.begin(), times.end(), std::not_equal_to<>()) == times.end()) {
    refuse(
        source, name,
        fmt::format("all {} times are {:g}, as netCDF has it for a dimension without coordinates; "
                    "write a variable of that name with ascending times and units such as "
                    "\"days since 2000-01-01\"",
                    times.size(), times[0]));
  }
  const std::string units = source.text(name, "units");
  if (lower_case(units).find(" as %") != std::string::npos) {
    refuse(source, name,
           fmt::format("units \"{}\" are dates written as numbers, which are not a time since a "
                       "date; `cdo -r copy` of CDO writes them as such",
                       printable(units)));
  }
  if (!is_cf_time(units)) return;
  std::string calendar_name = source.text(name, "calendar");
  if (calendar_name.empty()) calendar_name = "standard";
  const std::optional<Calendar> calendar = calendar_named(calendar_name);
  if (!calendar) {
    refuse(source, name, fmt::format("the calendar \"{}\" is not known", printable(calendar_name)));
  }
  const std::optional<CfTime> time = parse_cf_time(units, *calendar);
  if (!time) {
    refuse(source, name,
           fmt::format("units \"{}\" are no definite time in the calendar \"{}\"", printable(units),
                       printable(calendar_name)));
  }
  for (double& value : described.times) value = value * time->unit_seconds + time->origin_seconds;
  described.dated = true;
  described.calendar = *calendar;
}

// Of a coordinate, for a file of the same ones.
AxisTexts axis_texts(const CfSource& source, const std::string& name) {
  AxisTexts texts;
  texts.name = printable(name);
  for (const char* attribute : {"standard_name", "long_name", "units", "axis"}) {
    const std::string text = name_in(source, name, attribute);
    if (!text.empty()) texts.attributes.emplace_back(attribute, printable(text));
  }
  return texts;
}

// Of variable `name`; the attributes of CF Conventions 1.11, appendix F.
GridMapping grid_mapping_of(const CfSource& source, const std::string& name) {
  static constexpr std::array texts = {"grid_mapping_name", "crs_wkt", "sweep_angle_axis",
                                       "fixed_angle_axis", "proj4_params"};
  static constexpr std::array numbers = {"grid_north_pole_latitude",
                                         "grid_north_pole_longitude",
                                         "north_pole_grid_longitude",
                                         "earth_radius",
                                         "semi_major_axis",
                                         "semi_minor_axis",
                                         "inverse_flattening",
                                         "standard_parallel",
                                         "azimuth_of_central_line",
                                         "longitude_of_central_meridian",
                                         "longitude_of_prime_meridian",
                                         "longitude_of_projection_origin",
                                         "latitude_of_projection_origin",
                                         "straight_vertical_longitude_from_pole",
                                         "scale_factor_at_central_meridian",
                                         "scale_factor_at_projection_origin",
                                         "false_easting",
                                         "false_northing",
                                         "perspective_point_height"};
  GridMapping mapping;
  const std::string said = source.text(name, "grid_mapping");
  const std::string variable = said.substr(0, said.find_first_of(": "));
  const std::vector<std::string> names = source.names();
  if (variable.empty() || std::find(names.begin(), names.end(), variable) == names.end())
    return mapping;
  mapping.name = printable(variable);
  for (const char* attribute : texts) {
    const std::string text = source.text(variable, attribute);
    if (!text.empty()) mapping.texts.emplace_back(attribute, printable(text, 4096));
  }
  for (const char* attribute : numbers) {
    std::vector<double> values = source.numbers(variable, attribute);
    if (!values.empty() && values.size() <= 2)
      mapping.numbers.emplace_back(attribute, std::move(values));
  }
  return mapping;
}

// Latitude, longitude and time dimensions.
using Grid = std::tuple<std::string, std::string, std::string>;

}  // namespace

FieldFile describe_cf(const CfSource& source) {
  FieldFile described;
  std::vector<Variable> variables;
  std::map<Grid, int> grids;
  std::map<Grid, int> constant_grids;
  const auto grid_of = [](const Variable& variable) {
    return Grid(variable.dimension(Role::Row), variable.dimension(Role::Column),
                variable.dimension(Role::Time));
  };
  for (const std::string& name : source.names()) {
    std::optional<Variable> variable = read_variable(source, name, described.left_out);
    if (!variable) continue;
    ++(variable->axis(Role::Time) >= 0 ? grids : constant_grids)[grid_of(*variable)];
    variables.push_back(std::move(*variable));
  }
  // Orography and the like often have a file of their own.
  if (grids.empty()) grids = std::move(constant_grids);
  if (grids.empty()) {
    throw IoError(source.path(),
                  fmt::format("no variable with the dimensions (time, latitude, "
                              "longitude) among the datasets {}",
                              printable(fmt::format("{}", fmt::join(source.names(), ", ")), 600)));
  }
  // The grid that most variables are on.
  const Grid grid =
      std::max_element(grids.begin(), grids.end(), [](const auto& one, const auto& other) {
        return one.second < other.second;
      })->first;
  const auto& [row, column, time] = grid;
  described.axes = {row, column};
  described.coordinates = {source.line(row), source.line(column)};
  described.points = {static_cast<std::int64_t>(described.coordinates[0].size()),
                      static_cast<std::int64_t>(described.coordinates[1].size())};
  if (!time.empty()) read_times(source, time, described);
  for (const Variable& variable : variables) {
    const bool same_grid =
        variable.dimension(Role::Row) == row && variable.dimension(Role::Column) == column;
    const std::string of_variable = variable.dimension(Role::Time);
    if (same_grid && (of_variable == time || of_variable.empty())) {
      add_channels(source, variable, described);
      if (described.grid_mapping.name.empty())
        described.grid_mapping = grid_mapping_of(source, variable.name);
      continue;
    }
    std::string reason =
        fmt::format("is on the grid ({}, {}), and most are on ({}, {})",
                    variable.dimension(Role::Row), variable.dimension(Role::Column), row, column);
    if (same_grid) {
      reason = fmt::format("has its own times, \"{}\", and most have \"{}\"", of_variable, time);
    }
    described.left_out.push_back({printable(variable.name), printable(reason)});
  }
  const bool in_degrees = on_degrees(source, row, column, described.coordinates);
  if (!in_degrees || source.text(row, "standard_name") == "grid_latitude" ||
      source.text(column, "standard_name") == "grid_longitude") {
    described.axis_texts = {axis_texts(source, row), axis_texts(source, column)};
  }
  if (in_degrees) {
    described.axes = {"latitude", "longitude"};
    set_sphere_grid(described);
  } else {
    described.grid = "regional";
    described.grid_reason = fmt::format(
        "\"{}\" and \"{}\" are not known to be latitudes and longitudes in degrees: give the first "
        "one the attribute units = \"degrees_north\" if they are",
        printable(row), printable(column));
  }
  return described;
}

}  // namespace garonne::data
