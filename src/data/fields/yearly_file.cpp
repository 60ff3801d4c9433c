#include "data/fields/yearly_file.hpp"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/output_file.hpp"

namespace garonne::data {
namespace {

namespace fs = std::filesystem;

}  // namespace

std::vector<float> YearlyFields::latitudes() const {
  std::vector<float> degrees;
  for (const double colatitude : grid.colatitudes) {
    degrees.push_back(static_cast<float>(90 - colatitude * 180 / std::numbers::pi));
  }
  return degrees;
}

std::vector<float> YearlyFields::longitudes() const {
  std::vector<float> degrees;
  for (std::int64_t index = 0; index < grid.longitudes; ++index) {
    degrees.push_back(static_cast<float>(360 * static_cast<double>(index) /
                                         static_cast<double>(grid.longitudes)));
  }
  return degrees;
}

YearlyFile::YearlyFile(const YearlyFields& description, const std::string& path,
                       std::int64_t frames, double first_time)
    : partial_(path), file_(Hdf5File::create(partial_.path())) {
  const auto channels = static_cast<std::int64_t>(description.channels.size());
  const SphereGrid& grid = description.grid;
  frame_shape_ = {1, channels, grid.latitudes, grid.longitudes};
  const std::vector<std::int64_t> shape = {frames, channels, grid.latitudes, grid.longitudes};
  // Contiguous: a rank's rows of one channel are then one run of bytes.
  fields_.emplace(file_.create_array<float>("fields", shape));

  std::vector<double> times;
  for (std::int64_t frame = 0; frame < frames; ++frame) {
    times.push_back(first_time + static_cast<double>(frame) * description.frame_seconds);
  }
  const std::vector<std::int64_t> frame_count = {frames};
  file_.create_array<double>("timestamp", frame_count).write(0, std::span<const double>(times));
  file_.create_texts("channel", description.channels);
  const std::vector<float> latitudes = description.latitudes();
  const std::vector<float> longitudes = description.longitudes();
  const std::vector<std::int64_t> rows = {grid.latitudes};
  const std::vector<std::int64_t> columns = {grid.longitudes};
  file_.create_array<float>("lat", rows).write(0, std::span<const float>(latitudes));
  file_.create_array<float>("lon", columns).write(0, std::span<const float>(longitudes));
  const std::vector<std::int64_t> validity_shape = {frames, channels};
  const std::vector<std::int64_t> origin = {0, 0};
  const std::vector<std::int32_t> valid(static_cast<std::size_t>(frames * channels), 1);
  file_.create_array<std::int32_t>("valid_data", validity_shape)
      .write_box(origin, validity_shape, std::span<const std::int32_t>(valid));
  file_.attach_scale("fields", 0, "timestamp", "Timestamp in UTC time zone");
  file_.attach_scale("fields", 1, "channel", "Channel name");
  file_.attach_scale("fields", 2, "lat", "Latitude in degrees");
  file_.attach_scale("fields", 3, "lon", "Longitude in degrees");

  Hdf5Attributes attributes = file_.attributes("/");
  for (const auto& [name, text] : description.texts) attributes.write(name, text);
  for (const auto& [name, number] : description.numbers) {
    attributes.write(name, std::span<const double>(&number, 1));
  }
  for (const auto& [name, number] : description.integers) file_.write_attribute(name, number);
  attributes.write("grid_type", sphere_grid_name(grid.kind));
  if (description.trajectory_length > 0) {
    file_.write_attribute("trajectory_length", description.trajectory_length);
  }
}

void YearlyFile::write_frame(std::int64_t frame, std::span<const float> values) {
  const std::vector<std::int64_t> first = {frame, 0, 0, 0};
  fields_->write_box(first, frame_shape_, values);
}

void YearlyFile::publish() {
  fields_.reset();
  file_.close();
  partial_.publish();
}

std::int64_t yearly_file_bytes(const YearlyFields& description, std::int64_t frames) {
  const auto channels = static_cast<std::int64_t>(description.channels.size());
  const std::int64_t points = description.grid.latitudes * description.grid.longitudes;
  return frames * (channels * (4 * points + 4) + 8) + 65536;
}

void write_yearly_metadata(const YearlyFields& description, const std::string& folder) {
  nlohmann::ordered_json json;
  json["dataset_name"] = description.name;
  json["attrs"] = nlohmann::ordered_json::object();
  for (const auto& [name, text] : description.texts) json["attrs"][name] = text;
  for (const auto& [name, number] : description.numbers) json["attrs"][name] = number;
  for (const auto& [name, number] : description.integers) json["attrs"][name] = number;
  if (description.trajectory_length > 0) {
    json["attrs"]["trajectory_length"] = description.trajectory_length;
  }
  json["h5_path"] = "fields";
  json["dims"] = {"time", "channel", "lat", "lon"};
  const double hours = description.frame_seconds / 3600;
  if (hours == std::floor(hours)) {
    json["dhours"] = static_cast<std::int64_t>(hours);
  } else {
    json["dhours"] = hours;
  }
  json["coords"] = {{"grid_type", sphere_grid_name(description.grid.kind)},
                    {"lat", description.latitudes()},
                    {"lon", description.longitudes()},
                    {"channel", description.channels}};
  write_file_durably((fs::path(folder) / "data.json").string(), json.dump(2) + "\n");
}

void make_yearly_folder(const std::string& folder, bool with_test) {
  if (folder.empty()) throw ConfigError("no output folder was given");
  expect_suffix("--output", folder, "a folder of field files", {});
  std::error_code error;
  if (fs::exists(fs::path(folder) / "data.json", error)) {
    throw ConfigError("output", folder,
                      "already holds a data.json, which would be replaced; give a new folder");
  }
  for (const char* part : {"train", "test"}) {
    const fs::path inside = fs::path(folder) / part;
    if (!fs::is_directory(inside)) continue;
    for (const auto& entry : fs::directory_iterator(inside)) {
      if (entry.path().extension() == ".h5") {
        throw ConfigError(
            "output", folder,
            fmt::format("already holds {}; give a folder without field files, new and "
                        "old ones would be read as one",
                        entry.path().string()));
      }
    }
  }
  for (const char* part : {"train", "test", "stats"}) {
    if (!with_test && std::string(part) == "test") continue;
    const fs::path inside = fs::path(folder) / part;
    fs::create_directories(inside, error);
    if (error) throw IoError(inside.string(), "cannot be made: " + error.message());
  }
}

}  // namespace garonne::data
