// PDEBench's files: one array of samples (`tensor`, or one dataset a quantity of fluid), or one
// group a sample with `data` [time, space…, channel].
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.hpp"
#include "base/printable.hpp"
#include "data/layouts/field_layout.hpp"

namespace garonne::data {
namespace {

constexpr std::array axis_names = {"x", "y", "z"};
constexpr std::array fluid = {"density", "pressure", "Vx", "Vy", "Vz"};

bool grouped(const Hdf5File& file) {
  const std::vector<std::string> groups = file.groups();
  return !groups.empty() && file.has_dataset(groups[0] + "/data") &&
         file.has_group(groups[0] + "/grid");
}

bool has_fluid(const Hdf5File& file) {
  return file.has_dataset("Vx") && file.has_dataset("x-coordinate");
}

bool recognises(const Hdf5File& file) {
  return file.has_dataset("tensor") || has_fluid(file) || grouped(file);
}

// x-, y- and z-coordinate, as many as there are.
void read_coordinates(const Hdf5File& file, FieldFile& described) {
  for (const char* axis : axis_names) {
    const std::string name = fmt::format("{}-coordinate", axis);
    if (!file.has_dataset(name)) break;
    described.axes.emplace_back(axis);
    described.coordinates.push_back(read_line(file, name));
  }
}

// The points of space are the last dimensions of `shape`.
void set_points(const Hdf5File& file, const std::string& name, std::span<const std::int64_t> shape,
                std::size_t first, FieldFile& described) {
  check_axes(file.path(), name, shape, first, described.axes, described.coordinates);
  described.points.assign(shape.begin() + static_cast<std::ptrdiff_t>(first), shape.end());
}

// An attribute that others need not have; what cannot be a name of something is none.
std::string told(const Hdf5Attributes& attributes, const char* name) {
  constexpr std::size_t most = 80;
  if (!attributes.has_text(name)) return "";
  const std::vector<std::string> texts = attributes.texts(name);
  return texts.size() == 1 && texts[0].size() <= most ? texts[0] : "";
}

// The file has one time more than frames: where cells of time end.
void read_times(const Hdf5File& file, FieldFile& described) {
  if (!file.has_dataset("t-coordinate")) return;
  std::vector<double> times = read_line(file, "t-coordinate");
  const auto frames = static_cast<std::size_t>(described.frames);
  if (times.size() != frames && times.size() != frames + 1) {
    refuse_dataset(file, "t-coordinate",
                   fmt::format("has {} times for {} frames; the axes of the data look swapped",
                               times.size(), frames));
  }
  times.resize(frames);
  described.times = std::move(times);
  described.in_seconds = told(file.attributes("t-coordinate"), "units") == "s";
}

FieldPlace place_of(const std::string& channel, const std::string& dataset, int frame_axis,
                    int space_axis) {
  FieldPlace place;
  place.channel = channel;
  place.dataset = dataset;
  place.trajectory_axis = 0;
  place.frame_axis = frame_axis;
  place.space_axis = space_axis;
  return place;
}

// What the files say of a quantity, whose dataset PDEBench calls "tensor" or "nu" in all of them.
void read_names(const Hdf5File& file, FieldPlace& place) {
  const Hdf5Attributes attributes = file.attributes(place.dataset);
  place.long_name = told(attributes, "long_name");
  place.units = told(attributes, "units");
}

// Steady flow through a medium: `nu` [sample, space…] belongs to `tensor` [sample, 1, space…].
FieldFile describe_pairs(const Hdf5File& file, FieldFile described) {
  const Hdf5Dataset solution = file.dataset("tensor");
  const std::size_t rank = solution.shape().size();
  if (rank < 3) {
    refuse_dataset(file, "tensor",
                   fmt::format("has {} dimensions, {}, where [sample, channel, "
                               "space…] is expected",
                               rank, shape_text(solution.shape())));
  }
  const Hdf5Dataset coefficient = open_array(file, "nu", rank - 1, "[sample, space…]");
  open_array(file, "tensor", described.axes.empty() ? rank : described.axes.size() + 2,
             "[sample, channel, space…]");
  std::vector<std::int64_t> wanted = solution.shape();
  wanted.erase(wanted.begin() + 1);
  if (coefficient.shape() != wanted) {
    refuse_dataset(file, "nu",
                   fmt::format("its shape {} does not go with that of \"tensor\", {}",
                               shape_text(coefficient.shape()), shape_text(solution.shape())));
  }
  set_points(file, "tensor", solution.shape(), 2, described);
  described.storage = storage_text(solution);
  described.trajectories = solution.shape()[0];
  described.frames = 1;
  described.channels.push_back(place_of("nu", "nu", -1, 1));
  read_names(file, described.channels.back());
  check_channel_count(file.path(), "tensor", solution.shape()[1]);
  for (std::int64_t channel = 0; channel < solution.shape()[1]; ++channel) {
    const bool single = solution.shape()[1] == 1;
    FieldPlace place =
        place_of(single ? "tensor" : fmt::format("tensor_{}", channel), "tensor", -1, 2);
    place.fixed = {{1, channel}};
    read_names(file, place);
    described.targets.push_back(std::move(place));
  }
  described.grid = "box";
  return described;
}

// [sample, time, space…] in one dataset or one a quantity.
FieldFile describe_series(const Hdf5File& file, FieldFile described) {
  std::vector<std::string> names;
  if (file.has_dataset("tensor")) {
    names = {"tensor"};
  } else {
    for (const char* name : fluid) {
      const std::string component(name);
      // A file of a plane has no Vz.
      const bool beyond = component.size() == 2 && component[0] == 'V' &&
                          static_cast<std::size_t>(component[1] - 'x') >= described.axes.size();
      if (!beyond) names.push_back(component);
    }
  }
  const std::size_t rank =
      described.axes.empty() ? file.dataset(names[0]).shape().size() : described.axes.size() + 2;
  if (rank < 3) {
    refuse_dataset(file, names[0],
                   fmt::format("has {} dimensions where [sample, time, space…] is "
                               "expected",
                               rank));
  }
  std::vector<std::int64_t> first_shape;
  for (const std::string& name : names) {
    const Hdf5Dataset dataset = open_array(file, name, rank, "[sample, time, space…]");
    if (first_shape.empty()) {
      first_shape = dataset.shape();
      set_points(file, name, first_shape, 2, described);
      described.storage = storage_text(dataset);
    } else if (dataset.shape() != first_shape) {
      refuse_dataset(file, name,
                     fmt::format("its shape {} is not that of \"{}\", {}",
                                 shape_text(dataset.shape()), names[0], shape_text(first_shape)));
    }
    described.channels.push_back(place_of(name, name, 1, 2));
    read_names(file, described.channels.back());
  }
  described.trajectories = first_shape[0];
  described.frames = first_shape[1];
  read_times(file, described);
  // The names of the files of compressible flow say "periodic" or "trans", for open boundaries.
  const std::string name = std::filesystem::path(file.path()).filename().string();
  described.grid = name.find("trans") == std::string::npos ? "periodic" : "box";
  return described;
}

// One group a sample: `data` [time, space…, channel], `grid/x`, `grid/y`, `grid/t`.
FieldFile describe_groups(const Hdf5File& file) {
  FieldFile described;
  described.groups = file.groups();
  if (described.groups.empty()) {
    throw IoError(file.path(),
                  "is no file of PDEBench: there is neither a dataset \"tensor\" nor \"Vx\" with "
                  "\"x-coordinate\", nor a group a sample");
  }
  const std::string first = described.groups[0];
  for (const char* axis : axis_names) {
    const std::string name = fmt::format("{}/grid/{}", first, axis);
    if (!file.has_dataset(name)) break;
    described.axes.emplace_back(axis);
    described.coordinates.push_back(read_line(file, name));
  }
  const std::size_t space = described.axes.size();
  if (space == 0)
    throw IoError(file.path(), fmt::format("dataset \"{}/grid/x\" is missing", printable(first)));
  std::vector<std::int64_t> shape;
  for (const std::string& group : described.groups) {
    const std::string name = group + "/data";
    const Hdf5Dataset dataset = open_array(file, name, space + 2, "[time, space…, channel]");
    if (shape.empty()) {
      shape = dataset.shape();
      check_axes(file.path(), name, shape, 1, described.axes, described.coordinates);
      described.storage = storage_text(dataset);
    } else if (dataset.shape() != shape) {
      refuse_dataset(file, name,
                     fmt::format("its shape {} is not that of \"{}/data\", {}",
                                 shape_text(dataset.shape()), printable(first), shape_text(shape)));
    }
  }
  described.points.assign(shape.begin() + 1, shape.end() - 1);
  described.trajectories = static_cast<std::int64_t>(described.groups.size());
  described.frames = shape.front();
  check_channel_count(file.path(), first + "/data", shape.back());
  for (std::int64_t channel = 0; channel < shape.back(); ++channel) {
    FieldPlace place;
    place.channel = shape.back() == 1 ? "data" : fmt::format("data_{}", channel);
    place.dataset = "data";
    place.frame_axis = 0;
    place.space_axis = 1;
    place.fixed = {{static_cast<int>(space) + 1, channel}};
    described.channels.push_back(std::move(place));
  }
  if (file.has_dataset(first + "/grid/t")) {
    std::vector<double> times = read_line(file, first + "/grid/t");
    if (static_cast<std::int64_t>(times.size()) != described.frames) {
      refuse_dataset(file, first + "/grid/t",
                     fmt::format("has {} times for {} frames", times.size(), described.frames));
    }
    described.times = std::move(times);
  }
  described.grid = "box";
  return described;
}

FieldFile describe(const Hdf5File& file) {
  if (!file.has_dataset("tensor") && !has_fluid(file)) return describe_groups(file);
  FieldFile described;
  read_coordinates(file, described);
  FieldFile whole = file.has_dataset("nu") ? describe_pairs(file, std::move(described))
                                           : describe_series(file, std::move(described));
  const Hdf5Attributes attributes = file.attributes("/");
  if (attributes.has("grid")) whole.grid = attributes.text("grid");
  return whole;
}

}  // namespace

const FieldLayout& pdebench_layout() {
  static const FieldLayout layout = {"pdebench",
                                     "PDEBench: dataset \"tensor\" (with \"nu\" for pairs), "
                                     "\"density\" and velocities, or a group "
                                     "a sample with \"data\"",
                                     recognises, describe, /*continues=*/false};
  return layout;
}

}  // namespace garonne::data
