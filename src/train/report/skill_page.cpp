#include "train/report/skill_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json_input.hpp"
#include "data/fields/cf_time.hpp"

namespace garonne::train {
namespace {

using nlohmann::ordered_json;

// Six digits are more than a picture shows.
ordered_json number(double value) {
  if (!std::isfinite(value)) return nullptr;
  return std::stod(fmt::format("{:.6g}", value));
}

// values [a, b, c] as nested lists, of the first `kept` of the last axis but one if that is less.
ordered_json nested(const std::vector<double>& values, std::size_t a, std::size_t b, std::size_t c,
                    std::size_t kept) {
  ordered_json all = ordered_json::array();
  for (std::size_t i = 0; i < a; ++i) {
    ordered_json outer = ordered_json::array();
    for (std::size_t j = 0; j < std::min(b, kept); ++j) {
      ordered_json inner = ordered_json::array();
      for (std::size_t k = 0; k < c; ++k) inner.push_back(number(values[(i * b + j) * c + k]));
      outer.push_back(std::move(inner));
    }
    all.push_back(std::move(outer));
  }
  return all;
}

ordered_json axis_json(const data::FieldDatasetInfo& fields, std::size_t axis) {
  ordered_json json = {{"name", axis < fields.axes.size() ? fields.axes[axis] : ""},
                       {"first", nullptr},
                       {"last", nullptr}};
  if (axis < fields.coordinates.size() && fields.coordinates[axis].size() > 1) {
    json["first"] = fields.coordinates[axis].front();
    json["last"] = fields.coordinates[axis].back();
  }
  return json;
}

}  // namespace

std::vector<float> block_means(std::span<const float> field, std::int64_t rows,
                               std::int64_t columns, std::int64_t block_rows,
                               std::int64_t block_columns) {
  std::vector<float> means;
  for (std::int64_t row = 0; row < rows; row += block_rows) {
    const std::int64_t row_end = std::min(rows, row + block_rows);
    for (std::int64_t column = 0; column < columns; column += block_columns) {
      const std::int64_t column_end = std::min(columns, column + block_columns);
      double sum = 0;
      std::int64_t count = 0;
      for (std::int64_t i = row; i < row_end; ++i) {
        for (std::int64_t j = column; j < column_end; ++j) {
          const auto value = static_cast<double>(field[static_cast<std::size_t>(i * columns + j)]);
          if (std::isnan(value)) continue;
          sum += value;
          ++count;
        }
      }
      means.push_back(static_cast<float>(sum / static_cast<double>(count)));
    }
  }
  return means;
}

std::string quantised(std::span<const float> values, double low, double high) {
  static constexpr char digits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const double scale = high > low ? 255 / (high - low) : 0;
  std::string text;
  std::uint32_t bits = 0;
  int held = 0;
  for (const float value : values) {
    const double apart = std::isnan(value) ? 0 : static_cast<double>(value) - low;
    const double level = std::round(apart * scale);
    bits = (bits << 8U) | static_cast<std::uint32_t>(std::clamp(level, 0.0, 255.0));
    for (held += 8; held >= 6; held -= 6) text += digits[(bits >> unsigned(held - 6)) & 63U];
  }
  if (held > 0) text += digits[(bits << unsigned(6 - held)) & 63U];
  while (text.size() % 4 != 0) text += '=';
  return text;
}

SkillPage::SkillPage(const data::SkillSetting& setting)
    : channels_(std::min(most_channels, setting.channels.size())),
      calendar_(setting.fields.calendar) {
  const auto& points = setting.fields.points;
  if (points.size() != 2) return;
  rows_ = points[0];
  columns_ = points[1];
  block_rows_ = (rows_ + most_rows - 1) / most_rows;
  block_columns_ = (columns_ + most_columns - 1) / most_columns;
}

void SkillPage::add_map(std::size_t sample, std::size_t lead, double seconds,
                        std::span<const float> truth, std::span<const float> forecast) {
  if (rows_ == 0) return;
  const auto points = static_cast<std::size_t>(rows_ * columns_);
  ordered_json channels = ordered_json::array();
  for (std::size_t channel = 0; channel < channels_; ++channel) {
    const auto small = [&](std::span<const float> field) {
      return block_means(field.subspan(channel * points, points), rows_, columns_, block_rows_,
                         block_columns_);
    };
    const std::vector<float> true_map = small(truth);
    const std::vector<float> made_map = small(forecast);
    std::vector<float> error_map;
    double low = std::numeric_limits<double>::infinity();
    double high = -low;
    double limit = 0;
    for (std::size_t i = 0; i < true_map.size(); ++i) {
      const bool missing = std::isnan(true_map[i]);
      error_map.push_back(missing ? 0 : made_map[i] - true_map[i]);
      if (missing) continue;
      low = std::min({low, static_cast<double>(true_map[i]), static_cast<double>(made_map[i])});
      high = std::max({high, static_cast<double>(true_map[i]), static_cast<double>(made_map[i])});
      limit = std::max(limit, std::abs(static_cast<double>(error_map.back())));
    }
    if (low > high) low = high = 0;
    channels.push_back({{"low", number(low)},
                        {"high", number(high)},
                        {"limit", number(limit)},
                        {"truth", quantised(true_map, low, high)},
                        {"forecast", quantised(made_map, low, high)},
                        {"error", quantised(error_map, -limit, limit)}});
  }
  fields_.push_back(
      {{"sample", sample},
       {"lead", lead},
       {"time", std::isfinite(seconds) ? ordered_json(data::format_time(seconds, calendar_))
                                       : ordered_json(nullptr)},
       {"channels", std::move(channels)}});
}

ordered_json SkillPage::to_json(const data::SkillSetting& setting,
                                const data::SkillResults& results) const {
  const std::size_t sources = setting.sources.size();
  const auto leads = static_cast<std::size_t>(setting.leads);
  const std::size_t channels = setting.channels.size();
  const auto table = [&](const std::vector<double>& values) {
    return nested(values, sources, leads, channels, leads);
  };
  const auto spectra = [&](const std::vector<double>& values) {
    return nested(values, results.spectrum_leads.size(), channels,
                  static_cast<std::size_t>(results.wavenumbers), channels_);
  };
  ordered_json json = {{"format", "garonne.skill"},
                       {"version", 1},
                       {"run", setting.run},
                       {"step", setting.step},
                       {"data", setting.data},
                       {"samples", setting.samples},
                       {"pairs", setting.fields.pairs},
                       {"lead_seconds", setting.lead_seconds},
                       {"calendar", setting.fields.has_times
                                        ? ordered_json(data::calendar_name(setting.fields.calendar))
                                        : ordered_json(nullptr)},
                       {"weighting", setting.weighting},
                       {"climatology", setting.climatology},
                       {"grid", setting.fields.grid},
                       {"points", setting.fields.points},
                       {"sources", setting.sources},
                       {"channels", setting.channels},
                       {"units", setting.fields.target_units},
                       {"long_names", setting.fields.target_long_names},
                       {"rmse", table(results.rmse)},
                       {"acc", table(results.anomaly_correlation)},
                       {"bias", table(results.bias)},
                       {"relative_l2", table(results.relative_l2)}};
  if (!results.crps.empty()) {
    const auto by_lead = [&](const std::vector<double>& values) {
      return nested(values, 1, leads, channels, leads)[0];
    };
    const auto ranks = static_cast<std::size_t>(setting.members + 1);
    json["members"] = setting.members;
    json["noise"] = setting.noise;
    json["crps"] = by_lead(results.crps);
    json["spread"] = by_lead(results.spread);
    json["spread_skill_ratio"] = by_lead(results.spread_skill_ratio);
    json["rank_histogram"] = nested(results.ranks, leads, channels, ranks, channels);
  }
  json["spectra"] = {{"kind", results.spectrum},
                     {"leads", results.spectrum_leads},
                     {"truth", spectra(results.truth_spectrum)},
                     {"model", spectra(results.model_spectrum)}};
  json["maps"] = nullptr;
  if (rows_ > 0 && !fields_.empty()) {
    json["maps"] = {{"samples", setting.map_samples},
                    {"leads", setting.map_leads},
                    {"rows", (rows_ + block_rows_ - 1) / block_rows_},
                    {"columns", (columns_ + block_columns_ - 1) / block_columns_},
                    {"block", {block_rows_, block_columns_}},
                    {"axes", {axis_json(setting.fields, 0), axis_json(setting.fields, 1)}},
                    {"fields", fields_}};
  }
  return json;
}

ordered_json skill_of_run(const std::string& run_directory) {
  const std::string path = run_directory + "/" + skill_page_file;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return nullptr;
  auto json = parse_ordered_json(read_text_file(path), path, FileOwner::Run);
  if (!json.is_object() || !json.contains("format") || json["format"] != "garonne.skill" ||
      !json.contains("version") || json["version"] != 1) {
    throw IoError(path, "is no garonne.skill file; `garonne eval` writes it again");
  }
  return json;
}

}  // namespace garonne::train
