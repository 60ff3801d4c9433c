#include "data/fields/field_inspect.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "data/fields/field_step.hpp"

namespace garonne::data {
namespace {

// Files that a list shows at its two ends.
constexpr std::size_t shown_files = 12;

std::string frames_text(const FieldDatasetInfo& info) {
  if (info.pairs) return fmt::format("{} pairs of inputs and targets, no time", info.frames);
  std::string text = fmt::format("{} in {} without a gap, {}", info.frames,
                                 counted(info.runs, "run"), to_text(step_of(info)));
  if (info.has_times) {
    text += fmt::format("\n              {} to {}, calendar {}",
                        format_time(info.first_time, info.calendar),
                        format_time(info.last_time, info.calendar), calendar_name(info.calendar));
  }
  if (info.left_out > 0) {
    text += fmt::format("\n              without {} that not all channels have",
                        counted(info.left_out, "time"));
  }
  return text;
}

std::string axis_text(const FieldDatasetInfo& info, std::size_t axis) {
  std::string text = axis < info.axes.size() ? info.axes[axis] : fmt::format("axis {}", axis);
  if (axis < info.axis_texts.size()) text = info.axis_texts[axis].name;
  text += fmt::format(" {}", info.points[axis]);
  if (axis < info.coordinates.size() && !info.coordinates[axis].empty()) {
    text += fmt::format(" ({:g} to {:g})", info.coordinates[axis].front(),
                        info.coordinates[axis].back());
  }
  return text;
}

// Names in lines of at most a hundred columns, under each other.
std::string wrapped(const std::vector<std::string>& names) {
  std::string text;
  std::size_t column = 14;
  for (const std::string& name : names) {
    if (column + name.size() + 1 > 98 && column > 14) {
      text += "\n              ";
      column = 14;
    }
    text += name + " ";
    column += name.size() + 1;
  }
  if (!text.empty()) text.pop_back();
  return text;
}

// "t2m [K]" of the channels whose units the files tell; their blanks do not break.
std::vector<std::string> named_units(const FieldDatasetInfo& info) {
  std::vector<std::string> named;
  for (std::size_t channel = 0; channel < info.target_units.size(); ++channel) {
    if (info.target_units[channel].empty()) continue;
    named.push_back(
        fmt::format("{} [{}]", info.target_channels[channel], info.target_units[channel]));
  }
  return named;
}

// "tensor = pressure" of the channels that have a longer name.
std::vector<std::string> long_names(const FieldDatasetInfo& info) {
  std::vector<std::string> named;
  const auto add = [&](const std::vector<std::string>& channels,
                       const std::vector<std::string>& names) {
    for (std::size_t channel = 0; channel < names.size(); ++channel) {
      if (!names[channel].empty())
        named.push_back(fmt::format("{} = {}", channels[channel], names[channel]));
    }
  };
  if (info.pairs) add(info.input_channels, info.input_long_names);
  add(info.target_channels, info.target_long_names);
  // Names have blanks of their own.
  for (std::size_t name = 0; name + 1 < named.size(); ++name) named[name] += ',';
  return named;
}

std::string file_line(const FieldFileInfo& file, const FieldDatasetInfo& info) {
  std::string text = fmt::format("    {}  {}, ", file.path, format_bytes(file.bytes));
  if (file.trajectories > 1) text += fmt::format("{} × ", file.trajectories);
  text += counted(file.frames, "frame");
  if (info.has_times && file.frames > 0) {
    text += fmt::format(", {} to {}", format_time(file.first_time, info.calendar),
                        format_time(file.last_time, info.calendar));
  }
  return text + "\n";
}

std::string share_text(double missing, std::int64_t values) {
  if (values <= 0 || missing <= 0) return "";
  return fmt::format(" {:.3g} %", 100 * missing / static_cast<double>(values));
}

nlohmann::ordered_json summary_json(const FieldSummary& summary) {
  nlohmann::ordered_json json = {{"channels", summary.channels},   {"mean", summary.mean},
                                 {"deviation", summary.deviation}, {"least", summary.least},
                                 {"greatest", summary.greatest},   {"missing", summary.missing}};
  if (!summary.difference_deviation.empty()) {
    json["difference_mean"] = summary.difference_mean;
    json["difference_deviation"] = summary.difference_deviation;
  }
  return json;
}

}  // namespace

void count_stored_bytes(FieldDatasetInfo& info) {
  namespace fs = std::filesystem;
  for (FieldFileInfo& file : info.files) {
    std::error_code error;
    if (!fs::is_directory(file.path, error)) continue;
    std::int64_t bytes = 0;
    fs::recursive_directory_iterator entry(file.path, error);
    for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
      std::error_code of_file;
      if (entry->is_symlink(of_file) || !entry->is_regular_file(of_file)) continue;
      const auto size = entry->file_size(of_file);
      if (!of_file) bytes += static_cast<std::int64_t>(size);
    }
    if (!error) file.bytes = bytes;
  }
}

std::string describe(const FieldDatasetInfo& info) {
  std::int64_t bytes = 0;
  for (const FieldFileInfo& file : info.files) bytes += file.bytes;
  std::string text = fmt::format("{}: fields, layout {}, {}, {}\n", info.path, info.layout,
                                 counted(static_cast<std::int64_t>(info.files.size()), "file"),
                                 format_bytes(bytes));
  std::vector<std::string> axes;
  for (std::size_t axis = 0; axis < info.points.size(); ++axis) {
    axes.push_back(axis_text(info, axis));
  }
  text += fmt::format("  grid        {}: {}\n", info.grid, fmt::join(axes, " × "));
  if (!info.grid_reason.empty()) {
    text += fmt::format("              {}: {}\n", info.grid, info.grid_reason);
  }
  if (info.pairs) {
    text += fmt::format("  inputs      {}\n", wrapped(info.input_channels));
    text += fmt::format("  targets     {}\n", wrapped(info.target_channels));
  } else {
    text += fmt::format("  channels    {}\n              {}\n", info.channels.size(),
                        wrapped(info.channels));
  }
  for (const LeftOutVariable& variable : info.left_out_variables) {
    text += fmt::format("  left out    {} {}\n", variable.name, variable.reason);
  }
  const std::vector<std::string> names = long_names(info);
  if (!names.empty()) text += fmt::format("  meaning     {}\n", wrapped(names));
  const std::vector<std::string> units = named_units(info);
  if (!units.empty()) text += fmt::format("  units       {}\n", wrapped(units));
  text += fmt::format("  frames      {}\n", frames_text(info));
  for (const std::string& note : info.notes) text += fmt::format("  note        {}\n", note);
  text += fmt::format("  samples     {}\n", info.samples);
  if (!info.files.empty()) text += fmt::format("  storage     {}\n", info.files[0].storage);
  text += fmt::format("  statistics  {}\n",
                      info.statistics.empty() ? "none beside the data" : info.statistics);
  if (info.files.size() > 1) {
    text += "  files\n";
    for (std::size_t number = 0; number < info.files.size(); ++number) {
      const bool left_out = info.files.size() > shown_files && number >= shown_files / 2 &&
                            number < info.files.size() - shown_files / 2;
      if (!left_out) text += file_line(info.files[number], info);
      if (left_out && number == shown_files / 2) {
        text += fmt::format("    … and {} more\n", info.files.size() - shown_files);
      }
    }
  }
  return text;
}

nlohmann::ordered_json field_dataset_json(const FieldDatasetInfo& info) {
  nlohmann::ordered_json variables = nlohmann::ordered_json::array();
  for (const LeftOutVariable& variable : info.left_out_variables) {
    variables.push_back({{"name", variable.name}, {"reason", variable.reason}});
  }
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const FieldFileInfo& file : info.files) {
    nlohmann::ordered_json entry = {{"path", file.path},
                                    {"bytes", file.bytes},
                                    {"trajectories", file.trajectories},
                                    {"frames", file.frames},
                                    {"storage", file.storage}};
    if (info.has_times && file.frames > 0) {
      entry["first_time"] = format_time(file.first_time, info.calendar);
      entry["last_time"] = format_time(file.last_time, info.calendar);
    }
    files.push_back(std::move(entry));
  }
  return {{"format", "garonne.fields"},
          {"version", 1},
          {"path", info.path},
          {"layout", info.layout},
          {"grid", info.grid},
          {"grid_reason", info.grid_reason},
          {"axes", info.axes},
          {"points", info.points},
          {"coordinates", info.coordinates},
          {"channels", info.channels},
          {"input_channels", info.input_channels},
          {"target_channels", info.target_channels},
          {"target_units", info.target_units},
          {"input_long_names", info.input_long_names},
          {"target_long_names", info.target_long_names},
          {"target_standard_names", info.target_standard_names},
          {"calendar", info.has_times ? nlohmann::ordered_json(calendar_name(info.calendar))
                                      : nlohmann::ordered_json(nullptr)},
          {"pairs", info.pairs},
          {"frames", info.frames},
          {"runs", info.runs},
          {"left_out", info.left_out},
          {"left_out_variables", std::move(variables)},
          {"notes", info.notes},
          {"samples", info.samples},
          {"frame_seconds", info.frame_seconds},
          {"statistics", info.statistics},
          {"files", std::move(files)}};
}

std::string describe(const FieldSummaries& summaries, std::int64_t values) {
  std::size_t width = 8;
  for (const auto* summary : {&summaries.inputs, &summaries.targets}) {
    for (const std::string& channel : summary->channels) width = std::max(width, channel.size());
  }
  std::string text =
      fmt::format("  {:<{}} {:>13} {:>13} {:>13} {:>13} {:>13} {:>10}\n", "channel", width, "mean",
                  "deviation", "least", "greatest", "of changes", "missing");
  for (const auto* summary : {&summaries.inputs, &summaries.targets}) {
    for (std::size_t channel = 0; channel < summary->channels.size(); ++channel) {
      const std::string changes =
          summary->difference_deviation.empty()
              ? "-"
              : fmt::format("{:.6g}", summary->difference_deviation[channel]);
      text += fmt::format("  {:<{}} {:>13.6g} {:>13.6g} {:>13.6g} {:>13.6g} {:>13} {:>10.0f}{}\n",
                          summary->channels[channel], width, summary->mean[channel],
                          summary->deviation[channel], summary->least[channel],
                          summary->greatest[channel], changes, summary->missing[channel],
                          share_text(summary->missing[channel], values));
    }
  }
  return text;
}

nlohmann::ordered_json field_summaries_json(const FieldSummaries& summaries) {
  nlohmann::ordered_json json = {{"format", "garonne.field-statistics"},
                                 {"version", 1},
                                 {"lead", summaries.lead},
                                 {"inputs", summary_json(summaries.inputs)}};
  if (!summaries.targets.channels.empty()) json["targets"] = summary_json(summaries.targets);
  return json;
}

}  // namespace garonne::data
