#include "train/workload/field_manifest.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/json_input.hpp"
#include "base/printable.hpp"
#include "train/workload/field_workload.hpp"

namespace garonne::train {
namespace {

constexpr const char* step_key = "frame_step";
constexpr const char* statistics_key = "statistics";

std::vector<std::string> printable_names(const std::vector<std::string>& names) {
  std::vector<std::string> shown;
  for (const std::string& name : names) shown.push_back(printable(name));
  return shown;
}

// Of each axis, as a manifest has them: of one with very many points, or without a number for each,
// none.
std::vector<std::vector<double>> stored_coordinates(const data::FieldDatasetInfo& info) {
  constexpr std::size_t most = 1 << 16;
  std::vector<std::vector<double>> stored;
  for (const std::vector<double>& axis : info.coordinates) {
    const bool is_stored =
        axis.size() <= most &&
        std::all_of(axis.begin(), axis.end(), [](double at) { return std::isfinite(at); });
    stored.push_back(is_stored ? axis : std::vector<double>());
  }
  return stored;
}

nlohmann::json step_json(const data::FieldStep& step) {
  return {{"length", step.length},
          {"in_seconds", step.in_seconds},
          {"calendar", step.calendar ? data::calendar_name(*step.calendar) : ""}};
}

nlohmann::json moments_json(const data::FieldMoments& moments) {
  return {{"mean", moments.mean},
          {"deviation", moments.deviation},
          {"difference_deviation", moments.difference_deviation}};
}

data::FieldMoments moments_in(const JsonPlace& place, std::vector<std::string> channels) {
  data::FieldMoments moments;
  const auto read = [&](const char* key, std::vector<float>& values) {
    for (const double value : place.key(key).numbers()) values.push_back(static_cast<float>(value));
  };
  read("mean", moments.mean);
  read("deviation", moments.deviation);
  read("difference_deviation", moments.difference_deviation);
  if (moments.mean.size() != channels.size() || moments.deviation.size() != channels.size())
    place.refuse("has not a number for each channel");
  moments.channels = std::move(channels);
  return moments;
}

bool has_all(const JsonFile& file, std::initializer_list<const char*> keys) {
  return std::all_of(keys.begin(), keys.end(),
                     [&](const char* key) { return file.root().has(key); });
}

}  // namespace

nlohmann::json manifest_of_fields(const data::FieldDatasetInfo& info,
                                  const data::FieldStatistics& statistics) {
  nlohmann::json kept = {{"mode", statistics.mode}};
  if (statistics.mode == "channel") {
    kept["inputs"] = moments_json(statistics.inputs);
    kept["targets"] = moments_json(statistics.targets);
  }
  return {{"path", info.path},
          {"layout", info.layout},
          {"points", info.points},
          {"grid", info.grid},
          {"inputs", info.input_channels},
          {"targets", info.target_channels},
          {"samples", info.samples},
          {"axes", printable_names(info.axes)},
          {"coordinates", stored_coordinates(info)},
          {"input_units", info.input_units},
          {"target_units", info.target_units},
          {step_key, step_json(data::step_of(info))},
          {statistics_key, std::move(kept)}};
}

data::FieldStep step_in_manifest(const nlohmann::json& data, const std::string& where) {
  const std::string name = where + ": data";
  const JsonFile file(data, name, FileOwner::Run);
  data::FieldStep step;
  if (!data.is_object() || !file.root().has(step_key)) return step;
  const JsonPlace place = file.root().key(step_key);
  step.length = place.key("length").number(0, std::numeric_limits<double>::max());
  step.in_seconds = place.key("in_seconds").truth();
  const std::string calendar = place.key("calendar").text();
  if (calendar.empty()) return step;
  step.calendar = data::calendar_named(calendar);
  if (!step.calendar) place.key("calendar").refuse("is no calendar");
  return step;
}

std::optional<data::FieldTraits> traits_in_manifest(const nlohmann::json& data,
                                                    const std::string& where) {
  const std::string name = where + ": data";
  const JsonFile file(data, name, FileOwner::Run);
  if (!data.is_object() || !has_all(file, {"points", "inputs", "targets", "axes", "coordinates",
                                           "input_units", "target_units"}))
    return std::nullopt;
  data::FieldDatasetInfo info;
  info.axes = file.root().key("axes").texts();
  for (const JsonPlace& axis : file.root().key("coordinates").elements())
    info.coordinates.push_back(axis.numbers());
  info.input_channels = file.root().key("inputs").texts();
  info.input_units = file.root().key("input_units").texts();
  info.target_channels = file.root().key("targets").texts();
  info.target_units = file.root().key("target_units").texts();
  info.input_units.resize(info.input_channels.size());
  info.target_units.resize(info.target_channels.size());
  data::FieldTraits traits = data::traits_of(info);
  traits.step = step_in_manifest(data, where);
  return traits;
}

std::optional<data::FieldDatasetInfo> info_in_manifest(const nlohmann::json& data,
                                                       std::int64_t input_frames,
                                                       const std::string& where) {
  const std::optional<data::FieldTraits> traits = traits_in_manifest(data, where);
  const std::string name = where + ": data";
  const JsonFile file(data, name, FileOwner::Run);
  if (!traits || !has_all(file, {"path", "layout", "grid", "samples", step_key}))
    return std::nullopt;
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const JsonPlace root = file.root();
  data::FieldDatasetInfo info;
  info.path = root.key("path").text();
  info.layout = root.key("layout").text();
  info.grid = root.key("grid").text();
  info.points = root.key("points").integers(1, std::int64_t{1} << 24);
  if (info.points.empty() || info.points.size() > 3)
    root.key("points").refuse("wants one to three axes");
  info.samples = root.key("samples").integer(0, most);
  info.input_channels = root.key("inputs").texts();
  info.target_channels = root.key("targets").texts();
  info.input_units = root.key("input_units").texts();
  info.target_units = root.key("target_units").texts();
  info.input_units.resize(info.input_channels.size());
  info.target_units.resize(info.target_channels.size());
  info.axes = traits->axes;
  info.coordinates = traits->coordinates;
  info.frame_seconds = traits->step.length;
  info.in_seconds = traits->step.in_seconds;
  info.has_times = traits->step.calendar.has_value();
  if (traits->step.calendar) info.calendar = *traits->step.calendar;
  info.input_frames = input_frames;
  return info;
}

std::optional<data::FieldStatistics> statistics_in_manifest(const nlohmann::json& data,
                                                            const std::string& mode,
                                                            const std::string& where) {
  const std::string name = where + ": data";
  const JsonFile file(data, name, FileOwner::Run);
  if (!data.is_object() || !has_all(file, {"inputs", "targets", statistics_key}))
    return std::nullopt;
  const JsonPlace place = file.root().key(statistics_key);
  if (place.key("mode").text() != mode || !place.has("inputs") || !place.has("targets"))
    return std::nullopt;
  data::FieldStatistics statistics;
  statistics.mode = mode;
  statistics.inputs = moments_in(place.key("inputs"), file.root().key("inputs").texts());
  statistics.targets = moments_in(place.key("targets"), file.root().key("targets").texts());
  return statistics;
}

}  // namespace garonne::train
