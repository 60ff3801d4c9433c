// The yearly files of FourCastNet and makani: dataset `fields` [time, channel, latitude,
// longitude], newer ones with `timestamp` (seconds UTC), `lat`, `lon`, `channel` and `valid_data`
// beside it. What older ones lack may stand in data.json beside them or in the folder above. In
// makani's .h5v files, which put years and channels together, `fields` is a virtual dataset.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <utility>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json_input.hpp"
#include "base/printable.hpp"
#include "base/sphere_grid.hpp"
#include "data/fields/channel_units.hpp"
#include "data/layouts/field_layout.hpp"

namespace garonne::data {
namespace {

constexpr const char* fields = "fields";
// The roots of larger polynomials take long.
constexpr std::int64_t most_gauss_rows = 4096;
constexpr const char* expected = "[time, channel, latitude, longitude]";

// makani's data.json, wherever it lies.
struct Metadata {
  std::vector<std::string> channels;
  std::vector<double> latitudes;
  std::vector<double> longitudes;
  std::string grid;
  double frame_seconds = 0;
};

Metadata read_metadata(const std::string& path) {
  Metadata metadata;
  std::string file = find_beside(path, "data.json");
  if (file.empty()) file = find_beside(path, "metadata/data.json");
  if (file.empty()) return metadata;
  const nlohmann::json json = parse_json(read_text_file(file), file, FileOwner::Run);
  const JsonFile description(json, file, FileOwner::Run);
  const JsonPlace root = description.root();
  if (root.has("dhours")) metadata.frame_seconds = root.key("dhours").number(0, 1e9) * 3600;
  // The documents of makani say `coord`, its code says `coords`.
  for (const char* name : {"coords", "coord"}) {
    if (!root.has(name)) continue;
    const JsonPlace coordinates = root.key(name);
    if (coordinates.has("grid_type")) metadata.grid = coordinates.key("grid_type").text();
    if (coordinates.has("channel")) metadata.channels = coordinates.key("channel").texts();
    if (coordinates.has("lat")) metadata.latitudes = coordinates.key("lat").numbers();
    if (coordinates.has("lon")) metadata.longitudes = coordinates.key("lon").numbers();
  }
  return metadata;
}

bool recognises(const Hdf5File& file) {
  return file.has_dataset(fields);
}

// Latitudes from north to south that a grid of the whole sphere has, as far as rows and columns
// tell them: FourCastNet leaves the last row of an equiangular grid out. Empty where they do not.
std::vector<double> usual_latitudes(const std::string& grid, std::int64_t rows,
                                    std::int64_t columns) {
  std::vector<double> latitudes;
  if (rows < 2 || rows > most_coordinates) return latitudes;
  if (grid == "legendre-gauss" && rows <= most_gauss_rows) {
    for (const double colatitude :
         make_sphere_grid(SphereGridKind::LegendreGauss, rows, columns).colatitudes)
      latitudes.push_back(90 - colatitude * 180 / std::numbers::pi);
  }
  if (grid != "equiangular" && !grid.empty()) return latitudes;
  const bool one_pole = columns == 2 * rows;
  if (!one_pole && columns != 2 * (rows - 1)) return latitudes;
  const double step = 180.0 / static_cast<double>(one_pole ? rows : rows - 1);
  for (std::int64_t row = 0; row < rows; ++row)
    latitudes.push_back(90 - step * static_cast<double>(row));
  return latitudes;
}

void read_coordinates(const Hdf5File& file, const Metadata& metadata, FieldFile& described) {
  described.axes = {"latitude", "longitude"};
  std::vector<double> latitudes =
      file.has_dataset("lat") ? read_line(file, "lat") : metadata.latitudes;
  std::vector<double> longitudes =
      file.has_dataset("lon") ? read_line(file, "lon") : metadata.longitudes;
  if (latitudes.empty() && longitudes.empty()) {
    latitudes = usual_latitudes(metadata.grid, described.points[0], described.points[1]);
    if (latitudes.empty()) return;
    const double step = 360.0 / static_cast<double>(described.points[1]);
    for (std::int64_t column = 0; column < described.points[1]; ++column)
      longitudes.push_back(step * static_cast<double>(column));
    described.notes.push_back(fmt::format(
        "no file tells latitudes and longitudes: those of the {} grid are taken, {:g} to {:g} from "
        "north to south and from 0 eastwards; where they are others, give them in data.json beside "
        "the files (coords: lat, lon)",
        metadata.grid.empty() ? "equiangular" : metadata.grid, latitudes.front(),
        latitudes.back()));
  }
  if (!latitudes.empty() && !longitudes.empty()) {
    described.coordinates = {std::move(latitudes), std::move(longitudes)};
  }
}

// Seconds of the years 1 to 9999; more are of a finer unit.
void check_seconds(const Hdf5File& file, const std::vector<double>& times) {
  constexpr double first = -62135596800.0;
  constexpr double end = 253402300800.0;
  const auto wrong = std::find_if(times.begin(), times.end(),
                                  [](double time) { return time < first || time >= end; });
  if (wrong == times.end()) return;
  std::string hint;
  for (const auto& [unit, per_second] :
       {std::pair{"milliseconds", 1e3}, {"microseconds", 1e6}, {"nanoseconds", 1e9}}) {
    const double seconds = *wrong / per_second;
    // 1600 to 2400
    if (seconds < -11676096000.0 || seconds >= 13569465600.0) continue;
    hint = fmt::format(": they look like {}; divide them by {:g}", unit, per_second);
    break;
  }
  refuse_dataset(file, "timestamp",
                 fmt::format("has {:.17g} at frame {}, which is no time of the years 1 to 9999 in "
                             "seconds since 1970{}",
                             *wrong, wrong - times.begin(), hint));
}

void read_times(const Hdf5File& file, const Metadata& metadata, FieldFile& described) {
  described.frame_seconds = metadata.frame_seconds;
  described.in_seconds = metadata.frame_seconds > 0;
  if (!file.has_dataset("timestamp")) return;
  described.times = read_line(file, "timestamp");
  described.dated = true;
  if (static_cast<std::int64_t>(described.times.size()) != described.frames) {
    refuse_dataset(file, "timestamp",
                   fmt::format("has {} times, but \"{}\" has {} frames; its axes look swapped, or "
                               "the file was not written to its end",
                               described.times.size(), fields, described.frames));
  }
  check_seconds(file, described.times);
}

std::vector<std::string> channel_names(const Hdf5File& file, const Metadata& metadata,
                                       std::int64_t count) {
  std::vector<std::string> names = metadata.channels;
  std::string source = "data.json";
  if (file.has_dataset("channel")) {
    names = file.dataset("channel").read_texts();
    source = "dataset \"channel\"";
  }
  if (names.empty()) {
    for (std::int64_t channel = 0; channel < count; ++channel) {
      names.push_back(fmt::format("channel_{}", channel));
    }
  }
  if (static_cast<std::int64_t>(names.size()) != count) {
    refuse_dataset(file, fields,
                   fmt::format("has {} channels in its dimension 1, but {} names {}; a channel is "
                               "missing or its axes are swapped",
                               count, source, names.size()));
  }
  std::vector<std::string> sorted = names;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    refuse_dataset(file, fields,
                   fmt::format("{} calls two channels \"{}\"; each wants a name of its own", source,
                               printable(*twice)));
  }
  return names;
}

// Of each channel, where the attribute `units` of the fields says so; else empty.
std::vector<std::string> told_units(const Hdf5File& file, std::int64_t channels) {
  constexpr std::size_t most = 80;
  const Hdf5Attributes attributes = file.attributes(fields);
  if (!attributes.has_text("units")) return {};
  std::vector<std::string> units = attributes.texts("units");
  const bool named = static_cast<std::int64_t>(units.size()) == channels &&
                     std::all_of(units.begin(), units.end(),
                                 [](const std::string& unit) { return unit.size() <= most; });
  return named ? units : std::vector<std::string>();
}

// Where the file says which of its values are valid.
void read_validity(const Hdf5File& file, FieldFile& described) {
  if (!file.has_dataset("valid_data")) return;
  const Hdf5Dataset validity = file.dataset("valid_data", VirtualData::Allowed);
  const auto channels = static_cast<std::int64_t>(described.channels.size());
  if (validity.shape() != std::vector<std::int64_t>{described.frames, channels}) {
    refuse_dataset(file, "valid_data",
                   fmt::format("its shape is {}, not [{}, {}]", shape_text(validity.shape()),
                               described.frames, channels));
  }
  std::vector<bool> invalid(static_cast<std::size_t>(described.frames * channels));
  std::vector<std::int32_t> flags;
  const std::int64_t frames_at_once = std::max<std::int64_t>(1, (1 << 20) / channels);
  for (std::int64_t frame = 0; frame < described.frames; frame += frames_at_once) {
    const std::int64_t frames = std::min(frames_at_once, described.frames - frame);
    flags.resize(static_cast<std::size_t>(frames * channels));
    const std::vector<std::int64_t> first = {frame, 0};
    const std::vector<std::int64_t> count = {frames, channels};
    validity.read_box<std::int32_t>(first, count, flags);
    for (std::size_t index = 0; index < flags.size(); ++index) {
      invalid[static_cast<std::size_t>(frame * channels) + index] = flags[index] == 0;
    }
  }
  if (std::find(invalid.begin(), invalid.end(), true) != invalid.end()) {
    described.invalid = std::move(invalid);
  }
}

FieldFile describe(const Hdf5File& file) {
  FieldFile described;
  const Hdf5Dataset dataset = open_array(file, fields, 4, expected);
  const std::vector<std::int64_t>& shape = dataset.shape();
  const Metadata metadata = read_metadata(file.path());
  check_channel_count(file.path(), fields, shape[1]);
  described.storage = storage_text(dataset);
  described.frames = shape[0];
  described.points = {shape[2], shape[3]};
  read_coordinates(file, metadata, described);
  check_axes(file.path(), fields, shape, 2, described.axes, described.coordinates);
  if (described.coordinates.empty() && shape[2] > shape[3]) {
    refuse_dataset(file, fields,
                   fmt::format("{} is not {}: it would have more latitudes than longitudes; its "
                               "axes look swapped",
                               shape_text(shape), expected));
  }
  read_times(file, metadata, described);
  const std::vector<std::string> names = channel_names(file, metadata, shape[1]);
  const std::vector<std::string> units = told_units(file, shape[1]);
  for (std::int64_t channel = 0; channel < shape[1]; ++channel) {
    FieldPlace place;
    place.channel = names[static_cast<std::size_t>(channel)];
    place.usual_units = units.empty();
    place.units =
        units.empty() ? usual_units(place.channel) : units[static_cast<std::size_t>(channel)];
    place.dataset = fields;
    place.frame_axis = 0;
    place.fixed = {{1, channel}};
    place.space_axis = 2;
    described.channels.push_back(std::move(place));
  }
  read_validity(file, described);

  // Files without any are the global ones that FourCastNet published, or their like.
  described.grid = "equiangular";
  if (!described.coordinates.empty()) set_sphere_grid(described);
  if (metadata.grid == "legendre-gauss") {
    if (!described.coordinates.empty() && described.grid.starts_with("equiangular")) {
      refuse_dataset(
          file, fields,
          fmt::format("data.json calls its grid legendre-gauss, but its latitudes, {:g} "
                      "to {:g}, are equally spaced: correct grid_type, or lat",
                      described.coordinates[0].front(), described.coordinates[0].back()));
    }
    described.grid = metadata.grid;
    described.grid_reason.clear();
  }
  const Hdf5Attributes attributes = file.attributes("/");
  if (attributes.has("trajectory_length")) {
    const double length = attributes.number("trajectory_length");
    const bool countable = length >= 1 && length <= static_cast<double>(described.frames);
    described.run_length = countable ? static_cast<std::int64_t>(length) : 0;
    if (described.run_length < 1 || described.frames % described.run_length != 0) {
      throw IoError(
          file.path(),
          fmt::format("attribute \"trajectory_length\" is {}, which does not divide the {} "
                      "frames of dataset \"{}\"",
                      length, described.frames, fields));
    }
  }
  described.statistics = find_beside(file.path(), "stats");
  return described;
}

}  // namespace

const FieldLayout& yearly_layout() {
  static const FieldLayout layout = {
      "yearly", "FourCastNet, makani: dataset \"fields\" [time, channel, latitude, longitude]",
      recognises, describe, /*continues=*/true};
  return layout;
}

}  // namespace garonne::data
