#include "data/layouts/field_layout.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <numbers>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/printable.hpp"
#include "data/fields/field_dataset.hpp"

namespace garonne::data {
namespace {

// Evenly spaced to a hundredth of a step, ascending or descending.
bool even(const std::vector<double>& values) {
  if (values.size() < 2) return true;
  const double step = (values.back() - values.front()) / static_cast<double>(values.size() - 1);
  for (std::size_t index = 0; index < values.size(); ++index) {
    const double expected = values.front() + step * static_cast<double>(index);
    if (std::abs(values[index] - expected) > 0.01 * std::abs(step)) return false;
  }
  return step != 0;
}

// Whether the sines of the latitudes are the zeros of the Legendre polynomial of their number: a
// Newton step from each would move it by less than a hundredth of the mean spacing. The work grows
// with the square of their number; no grid has more.
bool gaussian(const std::vector<double>& latitudes) {
  if (latitudes.size() > 16384) return false;
  const auto count = static_cast<double>(latitudes.size());
  for (const double latitude : latitudes) {
    const double x = std::sin(latitude * std::numbers::pi / 180);
    double before = 1;
    double value = x;
    for (double degree = 1; degree < count; ++degree) {
      const double next = ((2 * degree + 1) * x * value - degree * before) / (degree + 1);
      before = value;
      value = next;
    }
    const double slope = count * (before - x * value);  // P'(x) · (1 − x²)
    const double step = value * std::cos(latitude * std::numbers::pi / 180) / slope;  // in radians
    if (!(std::abs(step) < 0.01 * std::numbers::pi / count)) return false;
  }
  return true;
}

// Whether evenly spaced columns go once around the globe.
bool around(const std::vector<double>& longitudes) {
  const auto columns = static_cast<double>(longitudes.size());
  const double turn = (longitudes.back() - longitudes.front()) * columns / (columns - 1);
  return even(longitudes) && std::abs(std::abs(turn) - 360) <= 0.5 * 360 / columns;
}

// Empty where they do.
std::string why_not_around(const std::vector<double>& longitudes) {
  if (around(longitudes)) return "";
  const double first = longitudes.front();
  const double last = longitudes.back();
  const double step = (last - first) / static_cast<double>(longitudes.size() - 1);
  if (even(longitudes) && std::abs(std::abs(last - first) - 360) < 0.01 * std::abs(step)) {
    return fmt::format(
        "its last column, at {:g}, is the first one, at {:g}, once more; leave it out (xarray: "
        "isel({{name: slice(0, -1)}}))",
        last, first);
  }
  // From 180 to -180, or from 360 to 0, within a row.
  std::vector<double> unwrapped = longitudes;
  double before = first;
  double after = first;
  for (std::size_t column = 1; column < unwrapped.size(); ++column) {
    const double gap = unwrapped[column] - unwrapped[column - 1];
    if (std::abs(gap) <= 180) continue;
    before = longitudes[column - 1];
    after = longitudes[column];
    const double turn = gap < 0 ? 360 : -360;
    for (std::size_t later = column; later < unwrapped.size(); ++later) unwrapped[later] += turn;
    break;
  }
  if (before != after && around(unwrapped)) {
    return fmt::format(
        "its longitudes jump from {:g} to {:g} within a row; sort the columns (xarray: sortby)",
        before, after);
  }
  if (!even(longitudes)) return "its longitudes are not evenly spaced";
  return fmt::format("its longitudes go from {:g} to {:g}, not around the globe", first, last);
}

[[noreturn]] void refuse(const std::string& path, const std::string& name,
                         const std::string& what) {
  throw IoError(path, fmt::format("dataset \"{}\": {}", printable(name), what));
}

}  // namespace

std::span<const FieldLayout> field_layouts() {
  // Tried in this order: the last one is the least particular.
  static const std::array layouts = {yearly_layout(), well_layout(), pdebench_layout(),
                                     netcdf_layout(), zarr_layout()};
  return layouts;
}

std::vector<std::string> field_layout_names() {
  std::vector<std::string> names;
  for (const FieldLayout& layout : field_layouts()) names.emplace_back(layout.name);
  return names;
}

const FieldLayout& choose_field_layout(const std::string& name, const Hdf5File& file) {
  for (const FieldLayout& layout : field_layouts()) {
    if (name == "auto" ? layout.recognises(file) : layout.name == name) return layout;
  }
  if (name != "auto") {
    throw ConfigError("data.layout", name,
                      fmt::format("known are auto, {}", fmt::join(field_layout_names(), ", ")));
  }
  std::string known;
  for (const FieldLayout& layout : field_layouts()) {
    known += fmt::format("\n  {:<9} {}", layout.name, layout.summary);
  }
  throw IoError(
      file.path(),
      fmt::format(
          "no known layout of fields; it has {}; known are{}",
          file.datasets().empty()
              ? std::string("no datasets at its root")
              : fmt::format(
                    "the datasets \"{}\"",
                    printable(fmt::format("{}", fmt::join(file.datasets(), "\", \"")), 600)),
          known));
}

void refuse_dataset(const Hdf5File& file, const std::string& name, const std::string& what) {
  refuse(file.path(), name, what);
}

void check_channel_count(const std::string& path, const std::string& name, std::int64_t count) {
  if (count <= most_channels) return;
  refuse(path, name, fmt::format("has {} channels; at most {} are read", count, most_channels));
}

Hdf5Dataset open_array(const Hdf5File& file, const std::string& name, std::size_t rank,
                       const std::string& expected) {
  Hdf5Dataset dataset = file.dataset(name, VirtualData::Allowed);
  if (dataset.shape().size() != rank) {
    refuse_dataset(
        file, name,
        fmt::format("has {} dimensions, {}, where {} are expected, {}", dataset.shape().size(),
                    shape_text(dataset.shape()), rank, expected));
  }
  if (dataset.type().family == NumberFamily::Other) refuse_dataset(file, name, "holds no numbers");
  for (const std::int64_t size : dataset.shape()) {
    if (size < 1)
      refuse_dataset(file, name, fmt::format("is empty: {}", shape_text(dataset.shape())));
  }
  return dataset;
}

std::vector<double> read_line(const Hdf5File& file, const std::string& name) {
  const Hdf5Dataset dataset = file.dataset(name, VirtualData::Allowed);
  if (dataset.shape().size() != 1) {
    refuse_dataset(file, name, fmt::format("has {} dimensions, not 1", dataset.shape().size()));
  }
  if (dataset.shape()[0] == 0) refuse_dataset(file, name, "is empty");
  return dataset.read_all<double>(most_coordinates);
}

void check_axes(const std::string& path, const std::string& name,
                std::span<const std::int64_t> shape, std::size_t first,
                const std::vector<std::string>& axes,
                const std::vector<std::vector<double>>& coordinates) {
  for (std::size_t axis = 0; axis < axes.size(); ++axis) {
    if (coordinates.size() <= axis || coordinates[axis].empty()) continue;
    const auto length = static_cast<std::int64_t>(coordinates[axis].size());
    if (shape[first + axis] == length) continue;
    std::string hint;
    if (std::find(shape.begin(), shape.end(), length) != shape.end()) {
      hint = "; its axes look swapped";
    }
    refuse(path, name,
           fmt::format("dimension {} of {} should be \"{}\", which has {} values{}", first + axis,
                       shape_text(shape), axes[axis], length, hint));
  }
}

SphereGridFound sphere_grid_of(const std::vector<double>& latitudes,
                               const std::vector<double>& longitudes) {
  if (latitudes.size() < 2 || longitudes.size() < 2) {
    return {"regional", "it has a single row or column"};
  }
  const std::string around = why_not_around(longitudes);
  if (!around.empty()) return {"regional", around};
  const auto rows = static_cast<double>(latitudes.size());
  const double span = std::abs(latitudes.back() - latitudes.front());
  const double step = span / (rows - 1);
  if (even(latitudes)) {
    // With both poles, or with one, as the files that FourCastNet published.
    if (std::abs(span - 180) < 0.02 * step) return {"equiangular", ""};
    if (std::abs(span + step - 180) < 0.02 * step) {
      const double edge = std::max(std::abs(latitudes.front()), std::abs(latitudes.back()));
      return {edge > 90 - 0.25 * step ? "equiangular" : "equiangular-midpoints", ""};
    }
  }
  if (gaussian(latitudes)) return {"legendre-gauss", ""};
  if (even(latitudes)) {
    return {"regional", fmt::format("its latitudes go from {:g} to {:g}, not from pole to pole",
                                    latitudes.front(), latitudes.back())};
  }
  return {"regional", "its latitudes are neither evenly spaced nor Gauss latitudes"};
}

void set_sphere_grid(FieldFile& described) {
  SphereGridFound found = sphere_grid_of(described.coordinates[0], described.coordinates[1]);
  described.grid = std::move(found.grid);
  described.grid_reason = std::move(found.reason);
}

std::string storage_text(const Hdf5Dataset& dataset) {
  const NumberType type = dataset.type();
  const char* family = type.family == NumberFamily::Floating   ? "float"
                       : type.family == NumberFamily::Unsigned ? "uint"
                                                               : "int";
  std::string text = fmt::format("{}{}", family, 8 * type.bytes);
  if (dataset.source_files() > 0) {
    return text + fmt::format(", virtual of {}",
                              counted(static_cast<std::int64_t>(dataset.source_files()), "file"));
  }
  text += dataset.chunk().empty() ? ", contiguous"
                                  : fmt::format(", chunks {}", shape_text(dataset.chunk()));
  if (dataset.compressed()) text += ", " + dataset.compression();
  if (dataset.checksummed()) text += ", Fletcher-32";
  return text;
}

std::string find_beside(const std::string& path, const std::string& name) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  for (const std::filesystem::path& place : {folder / name, folder / ".." / name}) {
    std::error_code ignored;
    if (std::filesystem::exists(place, ignored)) return place.lexically_normal().string();
  }
  return "";
}

}  // namespace garonne::data
