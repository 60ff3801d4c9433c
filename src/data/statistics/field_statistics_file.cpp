// Statistics of fields in files: our own, makani's folder of .npy files, The Well's stats.yaml.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json_input.hpp"
#include "base/partial_file.hpp"
#include "base/printable.hpp"
#include "data/hdf5/hdf5.hpp"
#include "data/hdf5/hdf5_output.hpp"
#include "data/statistics/field_statistics.hpp"
#include "data/statistics/npy.hpp"

namespace garonne::data {
namespace {

constexpr const char* file_format = "garonne.field-statistics";
constexpr std::int64_t file_version = 1;

struct NamedNumbers {
  const char* name;
  std::vector<double> FieldSummary::*numbers;
};
// The datasets of one number a channel.
constexpr NamedNumbers by_channel[] = {
    {"mean", &FieldSummary::mean},
    {"deviation", &FieldSummary::deviation},
    {"least", &FieldSummary::least},
    {"greatest", &FieldSummary::greatest},
    {"missing", &FieldSummary::missing},
    {"difference_mean", &FieldSummary::difference_mean},
    {"difference_deviation", &FieldSummary::difference_deviation}};
constexpr NamedNumbers by_point[] = {{"point_mean", &FieldSummary::point_mean},
                                     {"point_deviation", &FieldSummary::point_deviation}};

std::int64_t count_of(const FieldSummary& summary) {
  return static_cast<std::int64_t>(summary.channels.size());
}

// --- our own ---

void write_array(Hdf5File& file, const std::string& name, const std::vector<std::int64_t>& shape,
                 const std::vector<double>& values) {
  Hdf5Dataset dataset = file.create_array<double>(name, shape);
  const std::vector<std::int64_t> origin(shape.size(), 0);
  dataset.write_box<double>(origin, shape, values);
}

void write_summary(Hdf5File& file, const std::string& group, const FieldSummary& summary) {
  if (summary.channels.empty()) return;
  file.create_group(group);
  file.create_texts(group + "/channel", summary.channels);
  if (summary.units.size() == summary.channels.size())
    file.create_texts(group + "/units", summary.units);
  for (const NamedNumbers& entry : by_channel) {
    const std::vector<double>& numbers = summary.*entry.numbers;
    if (!numbers.empty()) {
      write_array(file, fmt::format("{}/{}", group, entry.name), {count_of(summary)}, numbers);
    }
  }
  std::vector<std::int64_t> shape = summary.points;
  shape.insert(shape.begin(), count_of(summary));
  for (const NamedNumbers& entry : by_point) {
    const std::vector<double>& numbers = summary.*entry.numbers;
    if (!numbers.empty())
      write_array(file, fmt::format("{}/{}", group, entry.name), shape, numbers);
  }
}

FieldSummary read_summary(const Hdf5File& file, const std::string& group) {
  FieldSummary summary;
  if (!file.has_group(group)) return summary;
  for (const std::string& name : file.dataset(group + "/channel").read_texts()) {
    summary.channels.push_back(printable(name));
  }
  const std::string units = group + "/units";
  if (file.has_dataset(units)) {
    for (const std::string& text : file.dataset(units).read_texts())
      summary.units.push_back(printable(text));
  }
  const auto read = [&](const NamedNumbers& entry) {
    const std::string name = fmt::format("{}/{}", group, entry.name);
    if (!file.has_dataset(name)) return std::vector<std::int64_t>();
    const Hdf5Dataset dataset = file.dataset(name);
    if (dataset.shape().empty() || dataset.shape()[0] != count_of(summary)) {
      throw IoError(file.path(), fmt::format("dataset \"{}\": its shape is {} for {} channels",
                                             name, shape_text(dataset.shape()), count_of(summary)));
    }
    summary.*entry.numbers = dataset.read_all<double>();
    return dataset.shape();
  };
  for (const NamedNumbers& entry : by_channel) read(entry);
  for (const NamedNumbers& entry : by_point) {
    const std::vector<std::int64_t> shape = read(entry);
    if (!shape.empty()) summary.points.assign(shape.begin() + 1, shape.end());
  }
  return summary;
}

void write_grid(Hdf5File& file, const FieldSummaries& summaries) {
  if (summaries.coordinates.empty() || summaries.axes.size() != summaries.coordinates.size())
    return;
  file.create_group("grid");
  file.create_texts("grid/axis", summaries.axes);
  for (std::size_t axis = 0; axis < summaries.axes.size(); ++axis) {
    const std::vector<double>& values = summaries.coordinates[axis];
    write_array(file, fmt::format("grid/{}", axis), {static_cast<std::int64_t>(values.size())},
                values);
  }
}

// Files of before have none.
void read_grid(const Hdf5File& file, FieldSummaries& summaries) {
  if (!file.has_group("grid")) return;
  for (const std::string& name : file.dataset("grid/axis").read_texts())
    summaries.axes.push_back(printable(name));
  for (std::size_t axis = 0; axis < summaries.axes.size(); ++axis)
    summaries.coordinates.push_back(file.dataset(fmt::format("grid/{}", axis)).read_all<double>());
}

void save_file(const std::string& path, const FieldSummaries& summaries) {
  PartialFile partial(path);
  Hdf5File file = Hdf5File::create(partial.path());
  file.write_attribute("format", std::string(file_format));
  file.write_attribute("format_version", file_version);
  file.write_attribute("lead", summaries.lead);
  write_grid(file, summaries);
  write_summary(file, "inputs", summaries.inputs);
  write_summary(file, "targets", summaries.targets);
  file.close();
  partial.publish();
}

FieldSummaries load_file(const std::string& path, std::shared_ptr<ForeignReader> foreign) {
  const Hdf5File file = Hdf5File::open(path, std::move(foreign));
  const std::string format = file.string_attribute("format");
  const std::int64_t version = file.integer_attribute("format_version");
  if (format != file_format || version != file_version) {
    throw IoError(path, fmt::format("its format is \"{}\" version {}, not \"{}\" version {}",
                                    printable(format), version, file_format, file_version));
  }
  FieldSummaries summaries;
  summaries.lead = file.integer_attribute("lead");
  read_grid(file, summaries);
  summaries.inputs = read_summary(file, "inputs");
  summaries.targets = read_summary(file, "targets");
  return summaries;
}

// --- makani's folder ---

constexpr const char* channels_file = "channels.json";  // ours: makani's own folders have no names
constexpr const char* folder_files[] = {"global_means.npy", "global_stds.npy", "mins.npy",
                                        "maxs.npy", "time_means.npy"};

// Whether it holds files that save_folder() writes and that it did not write.
bool holds_others(const std::filesystem::path& folder) {
  const auto exists = [&](const std::string& name) {
    std::error_code error;
    return std::filesystem::exists(folder / name, error);
  };
  if (exists(channels_file)) return false;
  return std::any_of(std::begin(folder_files), std::end(folder_files), exists);
}

void expect_folder(const std::string& path) {
  expect_suffix("--output", path,
                "FILE.h5, or else a folder of .npy files, as which this name is taken", {});
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return;
  if (!std::filesystem::is_directory(path, error)) {
    throw ConfigError("--output", path,
                      "is a file, and what is written there is a folder of .npy files; give a name "
                      "that ends in .h5, or that of a folder");
  }
  if (holds_others(path)) {
    throw ConfigError("--output", path,
                      "holds statistics that Garonne did not write, and that would be replaced; "
                      "give another folder, or remove them");
  }
}

std::string difference_name(const char* what, std::int64_t lead) {
  return fmt::format("time_diff_{}_dt{}.npy", what, lead);
}

void save_folder(const std::string& path, const FieldSummaries& summaries) {
  const FieldSummary& summary = summaries.inputs;
  if (!summaries.targets.channels.empty()) {
    throw ConfigError("output", path,
                      "a folder of .npy files has no place for the targets of pairs; give a name "
                      "that ends in .h5");
  }
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw IoError(path, error.message());
  const std::filesystem::path folder(path);
  // makani keeps four dimensions, for batches of two.
  const std::vector<std::int64_t> shape = {1, count_of(summary), 1, 1};
  const auto write = [&](const std::string& name, const std::vector<std::int64_t>& extent,
                         const std::vector<double>& numbers) {
    if (numbers.empty()) return;
    const std::vector<float> values(numbers.begin(), numbers.end());
    write_npy<float>((folder / name).string(), extent, values);
  };
  write("global_means.npy", shape, summary.mean);
  write("global_stds.npy", shape, summary.deviation);
  write("mins.npy", shape, summary.least);
  write("maxs.npy", shape, summary.greatest);
  write(difference_name("means", summaries.lead), shape, summary.difference_mean);
  write(difference_name("stds", summaries.lead), shape, summary.difference_deviation);
  std::vector<std::int64_t> extent = {1, count_of(summary)};
  extent.insert(extent.end(), summary.points.begin(), summary.points.end());
  write("time_means.npy", extent, summary.point_mean);
  const nlohmann::json names = {{"channels", summary.channels}};
  write_file_durably((folder / channels_file).string(), names.dump(2) + "\n");
}

std::vector<std::string> folder_channels(const std::filesystem::path& folder,
                                         const FieldDatasetInfo& info) {
  const std::string path = (folder / channels_file).string();
  if (!std::filesystem::exists(path)) return info.channels;
  const nlohmann::json json = parse_json(read_text_file(path), path, FileOwner::Run);
  return JsonFile(json, path, FileOwner::Run).root().key("channels").texts();
}

FieldSummaries load_folder(const std::string& path, const FieldDatasetInfo& info,
                           std::int64_t lead) {
  const std::filesystem::path folder(path);
  FieldSummaries summaries;
  summaries.lead = lead;
  FieldSummary& summary = summaries.inputs;
  summary.channels = folder_channels(folder, info);
  const auto read = [&](const std::string& name, bool needed) {
    const std::string file = (folder / name).string();
    if (!needed && !std::filesystem::exists(file)) return std::vector<double>();
    const NpyArray<double> array = read_npy<double>(file);
    if (static_cast<std::int64_t>(array.values.size()) != count_of(summary)) {
      throw IoError(file,
                    fmt::format("statistics of {} channels {}, but the data of {} have {} ({})",
                                array.values.size(), shape_text(array.shape), info.path,
                                count_of(summary), fmt::join(summary.channels, ", ")));
    }
    return array.values;
  };
  summary.mean = read("global_means.npy", true);
  summary.deviation = read("global_stds.npy", true);
  summary.least = read("mins.npy", false);
  summary.greatest = read("maxs.npy", false);
  summary.difference_mean = read(difference_name("means", lead), false);
  summary.difference_deviation = read(difference_name("stds", lead), false);
  return summaries;
}

// --- The Well's stats.yaml ---

// Two levels of keys, then a number, a list of numbers, or a list of lists: all that such files
// have. {statistic: {field: numbers in order}}.
using YamlNumbers = std::map<std::string, std::map<std::string, std::vector<double>>>;

YamlNumbers read_yaml_numbers(const std::string& path) {
  YamlNumbers found;
  std::string section;
  std::string field;
  std::istringstream lines(read_text_file(path));
  std::string line;
  std::int64_t number = 0;
  while (std::getline(lines, line)) {
    ++number;
    line.resize(std::min(line.find('#'), line.size()));
    const std::size_t indent = line.find_first_not_of(' ');
    if (indent == std::string::npos) continue;
    const std::size_t colon = line.find(':');
    std::string values = line.substr(indent);
    if (colon != std::string::npos) {
      const std::string key = line.substr(indent, colon - indent);
      values = line.substr(colon + 1);
      if (indent == 0) {
        section = key;
        field.clear();
      } else {
        field = key;
        found[section][field];
      }
    }
    std::replace_if(
        values.begin(), values.end(),
        [](char letter) { return letter == '[' || letter == ']' || letter == ','; }, ' ');
    std::istringstream words(values);
    std::string word;
    while (words >> word) {
      if (word == "-") continue;
      double value = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
      if (error != std::errc() || end != word.data() + word.size() || field.empty()) {
        throw IoError(path,
                      fmt::format("line {}: \"{}\" is not understood", number, printable(word)));
      }
      found[section][field].push_back(value);
    }
  }
  return found;
}

FieldSummaries load_yaml(const std::string& path, const FieldDatasetInfo& info, std::int64_t lead) {
  const YamlNumbers numbers = read_yaml_numbers(path);
  FieldSummaries summaries;
  summaries.lead = lead;
  FieldSummary& summary = summaries.inputs;
  const auto section = [&](const std::string& name) {
    const auto found = numbers.find(name);
    return found == numbers.end() ? std::map<std::string, std::vector<double>>() : found->second;
  };
  const auto means = section("mean");
  const auto deviations = section("std");
  const auto changes = section("std_delta");
  if (means.empty() || deviations.empty()) {
    throw IoError(path, "the keys \"mean\" and \"std\" are missing");
  }
  for (const auto& [field, values] : means) {
    // The channels of a field: itself, or its components in order.
    std::vector<std::string> channels;
    for (const std::string& channel : info.channels) {
      if (channel == field || (values.size() > 1 && channel.rfind(field + "_", 0) == 0)) {
        channels.push_back(channel);
      }
    }
    if (channels.empty()) continue;  // a field that is not on the whole grid
    const auto deviation = deviations.find(field);
    if (channels.size() != values.size() || deviation == deviations.end() ||
        deviation->second.size() != values.size()) {
      throw IoError(path,
                    fmt::format("{} means of \"{}\" for the {} channels {}", values.size(),
                                printable(field), channels.size(), fmt::join(channels, ", ")));
    }
    const auto change = changes.find(field);
    for (std::size_t index = 0; index < channels.size(); ++index) {
      summary.channels.push_back(channels[index]);
      summary.mean.push_back(values[index]);
      summary.deviation.push_back(deviation->second[index]);
      // For single frames only, as the file has them.
      if (lead == 1 && change != changes.end() && change->second.size() == values.size()) {
        summary.difference_deviation.push_back(change->second[index]);
      }
    }
  }
  if (summary.difference_deviation.size() != summary.channels.size()) {
    summary.difference_deviation.clear();
  }
  return summaries;
}

bool is_file_name(const std::string& path) {
  const std::string suffix = std::filesystem::path(path).extension().string();
  return suffix == ".h5" || suffix == ".hdf5";
}

}  // namespace

void expect_statistics_output(const std::string& path, const std::vector<std::string>& inputs) {
  if (is_file_name(path)) {
    expect_output("--output", path, hdf5_output("a file of statistics of Garonne", file_format),
                  inputs);
  } else {
    expect_folder(path);
  }
}

void save_field_summaries(const std::string& path, const FieldSummaries& summaries) {
  expect_statistics_output(path);
  if (is_file_name(path)) {
    save_file(path, summaries);
  } else {
    save_folder(path, summaries);
  }
}

FieldSummaries load_field_summaries(const std::string& path, const FieldDatasetInfo& info,
                                    std::int64_t lead, std::shared_ptr<ForeignReader> foreign) {
  if (!std::filesystem::exists(path)) {
    throw IoError(path,
                  "no such file or folder of statistics; `garonne data statistics` makes one");
  }
  if (std::filesystem::is_directory(path)) return load_folder(path, info, lead);
  const std::string suffix = std::filesystem::path(path).extension().string();
  if (suffix == ".yaml" || suffix == ".yml") return load_yaml(path, info, lead);
  FieldSummaries summaries = load_file(path, std::move(foreign));
  if (summaries.lead != lead) {
    // Changes over another time say nothing about these.
    for (FieldSummary* summary : {&summaries.inputs, &summaries.targets}) {
      summary->difference_mean.clear();
      summary->difference_deviation.clear();
    }
  }
  return summaries;
}

}  // namespace garonne::data
