#include "train/workload/described_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <numbers>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/contains.hpp"
#include "base/error.hpp"
#include "base/sphere_grid.hpp"
#include "nn/model_kind.hpp"
#include "train/workload/field_workload.hpp"
#include "train/workload/workload_kind.hpp"

namespace garonne::train {
namespace {

constexpr std::int64_t largest_size = 1 << 24;
const std::vector<std::string> grids = {"box", "periodic", "equiangular", "equiangular-midpoints",
                                        "legendre-gauss"};

std::optional<std::int64_t> size_in(std::string_view text) {
  std::int64_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (size < 1 || size > largest_size) return std::nullopt;
  return size;
}

// North to south, in degrees; empty where rows are no latitudes.
std::vector<double> latitudes_of(const DescribedFields& fields) {
  if (fields.grid == "box" || fields.grid == "periodic") return {};
  const SphereGrid grid =
      make_sphere_grid(sphere_grid_kind("grid", fields.grid), fields.points[0], fields.points[1]);
  std::vector<double> latitudes;
  for (const double colatitude : grid.colatitudes)
    latitudes.push_back(90 - colatitude * 180 / std::numbers::pi);
  return latitudes;
}

// Those that a run names; all of a frame where it names none.
std::vector<std::string> channels_of(const std::string& key, const std::vector<std::string>& named,
                                     const DescribedFields& fields, const std::string& option) {
  if (static_cast<std::int64_t>(named.size()) > fields.channels) {
    throw ConfigError(option, fmt::format("{}", fields.channels),
                      fmt::format("are fewer channels than {} names: {}", key, named.size()));
  }
  if (!named.empty()) return named;
  std::vector<std::string> all;
  for (std::int64_t c = 0; c < fields.channels; ++c) all.push_back(fmt::format("channel {}", c));
  return all;
}

data::FieldStatistics neutral_statistics(const RunConfig& config,
                                         const data::FieldDatasetInfo& info) {
  data::FieldStatistics statistics;
  statistics.mode = config.data.normalisation;
  data::check_normalisation(statistics.mode);
  if (statistics.mode == "none") return statistics;
  std::int64_t values = static_cast<std::int64_t>(info.target_channels.size());
  if (statistics.mode == "pointwise") {
    for (const std::int64_t size : info.points) values *= size;
  }
  statistics.targets.mean.assign(static_cast<std::size_t>(values), 0.0F);
  statistics.targets.deviation.assign(static_cast<std::size_t>(values), 1.0F);
  return statistics;
}

}  // namespace

DescribedFields DescribedFields::parse(const std::string& option, const std::string& text) {
  const auto refuse = [&](const std::string& why) {
    return ConfigError(option, text,
                       why +
                           "; give channels and points along one to three axes, and the grid "
                           "where it is no box, as 73x721x1440:equiangular");
  };
  DescribedFields fields;
  std::string_view sizes = text;
  if (const std::size_t colon = sizes.find(':'); colon != std::string_view::npos) {
    fields.grid = sizes.substr(colon + 1);
    sizes = sizes.substr(0, colon);
    if (!contains(grids, fields.grid))
      throw refuse(fmt::format("has a grid that is none of {}", fmt::join(grids, ", ")));
  }
  std::vector<std::int64_t> found;
  while (true) {
    const std::size_t end = sizes.find('x');
    const auto size = size_in(sizes.substr(0, end));
    if (!size) throw refuse(fmt::format("has a size that is no number from 1 to {}", largest_size));
    found.push_back(*size);
    if (end == std::string_view::npos) break;
    sizes.remove_prefix(end + 1);
  }
  if (found.size() < 2 || found.size() > 4) throw refuse("has another number of sizes");
  fields.channels = found.front();
  fields.points.assign(found.begin() + 1, found.end());
  if (is_sphere_grid(fields.grid) && (fields.points.size() != 2 || fields.points[0] < 2))
    throw refuse("is no grid on the sphere, which has two axes and two latitudes or more");
  return fields;
}

DataFacts facts_of_described(const RunConfig& config, const DescribedFields& fields,
                             const std::string& option) {
  expect_model_of(fields_kind(), config.model.kind, option, fmt::format("{}", fields.channels));
  const data::FieldQuery query = field_query(config, Part::Training);
  data::FieldDatasetInfo info;
  info.input_channels = channels_of("data.inputs", query.input_channels, fields, option);
  info.target_channels = channels_of("data.targets", query.target_channels, fields, option);
  info.points = fields.points;
  info.grid = fields.grid;
  info.input_frames = query.history + 1;
  const std::vector<double> latitudes = latitudes_of(fields);
  if (!latitudes.empty()) info.coordinates = {latitudes};
  DataFacts facts;
  if (!has_validation(config)) facts.validation_samples = 0;
  facts.fields = field_shape(config, info, neutral_statistics(config, info));
  return facts;
}

DataFacts facts_of_data_or_advice(const RunConfig& config, const std::string& option) {
  try {
    return facts_of(config);
  } catch (const IoError&) {
    std::error_code error;
    if (nn::model_kind(config.model.kind).learns_from != nn::LearnsFrom::Fields ||
        std::filesystem::exists(config.data.path, error))
      throw;
    throw IoError(
        config.data.path,
        "no such file; to plan before the data are there, give their sizes with " + option);
  }
}

}  // namespace garonne::train
