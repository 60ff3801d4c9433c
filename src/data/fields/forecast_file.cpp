#include "data/fields/forecast_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json_input.hpp"
#include "base/partial_file.hpp"
#include "data/fields/netcdf_axes.hpp"
#include "data/hdf5/hdf5.hpp"
#include "data/hdf5/hdf5_output.hpp"

namespace garonne::data {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr const char* format_name = "garonne.forecast";

// A state of a channel is a chunk, in pieces of its first axis where it is larger.
constexpr std::int64_t most_chunk_values = 4 << 20;

std::int64_t length(const auto& values) {
  return static_cast<std::int64_t>(values.size());
}

// What two forecasts have to have alike for the one to go on with the file of the other.
nlohmann::ordered_json identity(const ForecastSetting& setting) {
  return {{"run", setting.run},          {"step", setting.step},
          {"model", setting.model},      {"contents", setting.contents},
          {"data", setting.fields.path}, {"channels", setting.fields.target_channels},
          {"frames", setting.frames},    {"steps", setting.leads},
          {"members", setting.members},  {"noise", setting.noise},
          {"seed", setting.seed},        {"compression", setting.compression}};
}

// Seconds from each start to each of its leads, [starts, leads]; empty without dates.
std::vector<double> periods_of(const ForecastSetting& setting) {
  const std::size_t leads = static_cast<std::size_t>(setting.leads);
  std::vector<double> periods;
  if (!setting.fields.has_times || setting.valid_times.size() != setting.starts.size() * leads) {
    return periods;
  }
  for (std::size_t place = 0; place < setting.valid_times.size(); ++place) {
    periods.push_back(setting.valid_times[place] - setting.starts[place / leads]);
  }
  return periods;
}

// Months differ in their days, so that a lead may be another time from each start.
bool one_for_all_starts(const ForecastSetting& setting, const std::vector<double>& periods) {
  for (std::size_t place = 0; place < periods.size(); ++place) {
    const double first = periods[place % static_cast<std::size_t>(setting.leads)];
    if (std::abs(periods[place] - first) > 0.5) return false;
  }
  return true;
}

// In what the forecast of a file differs from this one; empty = in nothing. IoError.
std::string difference(const Hdf5File& file, const ForecastSetting& setting) {
  const std::string text = file.has_attribute("setting") ? file.string_attribute("setting") : "{}";
  const auto there = parse_ordered_json(text, file.path(), FileOwner::Run);
  const nlohmann::ordered_json wanted = identity(setting);
  for (const auto& [key, value] : wanted.items()) {
    if (there.contains(key) && there[key] == value) continue;
    return fmt::format("its {} is {}, that of this one {}", key,
                       there.contains(key) ? there[key].dump() : "not known", value.dump());
  }
  return {};
}

// What was forecast before is replaced only by the same forecast, made again.
void expect_output_of(const std::string& path, const ForecastSetting& setting) {
  std::vector<std::string> inputs;
  for (const FieldFileInfo& file : setting.fields.files) inputs.push_back(file.path);
  expect_output("--output", path, netcdf_output("a forecast of Garonne", format_name), inputs);
  std::error_code error;
  if (!std::filesystem::exists(path, error) || std::filesystem::is_empty(path, error)) return;
  const std::string other = difference(Hdf5File::open(path), setting);
  if (other.empty()) return;
  throw ConfigError("--output", path,
                    fmt::format("is there already and is another forecast: {}; give another name, "
                                "or remove it",
                                other));
}

// A file that one process at a time holds.
class Held {
 public:
  explicit Held(const std::string& path)
      : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)) {
    // Where the file system has no locks there is nobody to ask.
    if (descriptor_ >= 0 && ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      ::close(descriptor_);
      throw IoError(path, "is being written by another process");
    }
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

 private:
  int descriptor_;
};

}  // namespace

struct ForecastFile::Parts {
  Parts(const std::string& target, ForecastSetting given)
      : path(target), part(target + ".part"), setting(std::move(given)) {}

  std::string path;
  std::string part;
  ForecastSetting setting;
  std::optional<Held> held;
  std::optional<Hdf5File> file;
  std::vector<Hdf5Dataset> fields;  // closed before the file
  std::optional<Hdf5Dataset> counts;
  std::vector<std::string> names;      // of the variables
  std::vector<std::int64_t> finished;  // [members, starts]

  std::size_t place(std::size_t start, std::size_t member) const {
    return member * setting.starts.size() + start;
  }
  // [member,] start, lead: the front of `shape`s of variables.
  Shape front(std::int64_t member, std::int64_t start) const {
    return setting.members > 1 ? Shape{member, start} : Shape{start};
  }
  void make() const;
  void describe(Hdf5File& out) const;
  void go_on();
  // The box of the state of one channel.
  std::pair<Shape, Shape> box(std::size_t start, std::size_t member, std::int64_t lead) const;
};

// Under another name until it is whole, so that a part can always be gone on with.
void ForecastFile::Parts::make() const {
  PartialFile partial(part);
  Hdf5File out = Hdf5File::create(partial.path());
  const std::vector<std::string> axes = write_axes(out, "", setting.fields);
  std::vector<std::string> taken = names;
  taken.insert(taken.end(), axes.begin(), axes.end());
  taken.insert(taken.end(), {"time", "lead", "realization", "valid_time", "forecast_period"});
  const std::string mapping = write_grid_mapping(out, setting.fields.grid_mapping, taken);
  describe(out);
  Shape shape = front(setting.members, length(setting.starts));
  const std::vector<std::int32_t> none(static_cast<std::size_t>(setting.members) *
                                       setting.starts.size());
  out.create_array<std::int32_t>("finished", shape)
      .write_box<std::int32_t>(Shape(shape.size(), 0), shape, none);
  out.attributes("finished")
      .write("long_name", std::string("steps of the forecast that are in this file"));
  std::vector<std::string> dimensions = {"time"};
  if (setting.members > 1) dimensions.insert(dimensions.begin(), "realization");
  for (std::size_t axis = 0; axis < dimensions.size(); ++axis) {
    out.attach_scale("finished", static_cast<int>(axis), dimensions[axis]);
  }
  dimensions.emplace_back("lead");
  dimensions.insert(dimensions.end(), axes.begin(), axes.end());
  shape.push_back(setting.leads);
  Shape chunk(shape.size(), 1);
  shape.insert(shape.end(), setting.fields.points.begin(), setting.fields.points.end());
  chunk.insert(chunk.end(), setting.fields.points.begin(), setting.fields.points.end());
  const std::size_t row = chunk.size() - setting.fields.points.size();
  const std::int64_t values = setting.fields.plane(setting.fields.points[0]);
  const std::int64_t pieces = (values + most_chunk_values - 1) / most_chunk_values;
  chunk[row] = (chunk[row] + pieces - 1) / pieces;
  for (std::size_t channel = 0; channel < names.size(); ++channel) {
    const std::string& name = names[channel];
    out.create_compressed(name, shape, chunk, setting.compression);
    Hdf5Attributes attributes = out.attributes(name);
    attributes.write_value("_FillValue", std::nanf(""));
    const auto& long_names = setting.fields.target_long_names;
    const bool named = channel < long_names.size() && !long_names[channel].empty();
    attributes.write("long_name",
                     named ? long_names[channel] : setting.fields.target_channels[channel]);
    const std::string units =
        channel < setting.fields.target_units.size() ? setting.fields.target_units[channel] : "";
    if (!units.empty()) attributes.write("units", units);
    const auto& standard_names = setting.fields.target_standard_names;
    if (channel < standard_names.size() && !standard_names[channel].empty()) {
      attributes.write("standard_name", standard_names[channel]);
    }
    if (!mapping.empty()) attributes.write("grid_mapping", mapping);
    if (!setting.valid_times.empty() && setting.fields.has_times) {
      attributes.write("coordinates", std::string(one_for_all_starts(setting, periods_of(setting))
                                                      ? "valid_time"
                                                      : "valid_time forecast_period"));
    }
    for (std::size_t axis = 0; axis < dimensions.size(); ++axis) {
      out.attach_scale(name, static_cast<int>(axis), dimensions[axis]);
    }
  }
  out.close();
  partial.publish_without_waiting();
}

void ForecastFile::Parts::describe(Hdf5File& out) const {
  const std::int64_t starts = length(setting.starts);
  const bool dated = setting.fields.has_times;
  Hdf5Attributes root = out.attributes("/");
  root.write("Conventions", std::string("CF-1.11"));
  root.write("title", fmt::format("Forecast by a model that Garonne trained, {}", setting.run));
  root.write("source", fmt::format("checkpoint of step {} of {}", setting.step, setting.run));
  root.write("initial_states", setting.fields.path);
  root.write("format", std::string(format_name));
  root.write_value("format_version", std::int64_t{1});
  root.write("setting", identity(setting).dump());
  if (dated) {
    write_times(out, "time", {starts}, setting.starts, setting.fields.calendar);
    Hdf5Attributes time = out.attributes("time");
    time.write("standard_name", std::string("forecast_reference_time"));
    time.write("axis", std::string("T"));
  } else {
    out.create_array<std::int64_t>("time", Shape{starts}).write<std::int64_t>(0, setting.frames);
    out.attributes("time").write("long_name", std::string("number of the frame of the start"));
  }
  out.make_scale("time");
  std::vector<std::int64_t> steps(static_cast<std::size_t>(setting.leads));
  std::iota(steps.begin(), steps.end(), 1);
  const std::vector<double> periods = periods_of(setting);
  const bool common = one_for_all_starts(setting, periods);
  if (common && !periods.empty()) {
    write_periods(out, "lead", {setting.leads},
                  std::span(periods).first(static_cast<std::size_t>(setting.leads)));
  } else {
    const std::int64_t months = setting.frame_step.months();
    write_leads(out, "lead", steps, common ? setting.lead_seconds : 0,
                months > 0 ? "steps of the model, of calendar months" : "steps of the model");
  }
  out.make_scale("lead");
  if (setting.members > 1) {
    std::vector<std::int64_t> members(static_cast<std::size_t>(setting.members));
    std::iota(members.begin(), members.end(), 0);
    write_numbers(out, "realization", members);
    out.attributes("realization").write("standard_name", std::string("realization"));
  }
  if (dated && !setting.valid_times.empty()) {
    write_times(out, "valid_time", {starts, setting.leads}, setting.valid_times,
                setting.fields.calendar);
    out.attributes("valid_time").write("standard_name", std::string("time"));
    out.attach_scale("valid_time", 0, "time");
    out.attach_scale("valid_time", 1, "lead");
  }
  if (!common) {
    write_periods(out, "forecast_period", {starts, setting.leads}, periods);
    out.attach_scale("forecast_period", 0, "time");
    out.attach_scale("forecast_period", 1, "lead");
  }
}

void ForecastFile::Parts::go_on() {
  held.emplace(part);
  file.emplace(Hdf5File::open_unfinished(part));
  if (const std::string other = difference(*file, setting); !other.empty()) {
    throw IoError(part, fmt::format("is of another forecast: {}; go on with that one, or remove "
                                    "the file",
                                    other));
  }
  file->begin_safe_writing();
  for (const std::string& name : names) fields.push_back(file->dataset(name));
  counts.emplace(file->dataset("finished"));
  const auto counted = counts->read_all<std::int32_t>();
  finished.assign(counted.begin(), counted.end());
}

std::pair<Shape, Shape> ForecastFile::Parts::box(std::size_t start, std::size_t member,
                                                 std::int64_t lead) const {
  Shape first = front(static_cast<std::int64_t>(member), static_cast<std::int64_t>(start));
  first.push_back(lead - 1);
  Shape count(first.size(), 1);
  first.resize(first.size() + setting.fields.points.size(), 0);
  count.insert(count.end(), setting.fields.points.begin(), setting.fields.points.end());
  return {first, count};
}

ForecastFile::ForecastFile(const std::string& path, const ForecastSetting& setting)
    : parts_(std::make_unique<Parts>(path, setting)) {
  expect_output_of(path, setting);
  parts_->names =
      netcdf_names(setting.fields.target_channels,
                   {"time", "lead", "realization", "valid_time", "forecast_period", "finished"});
  std::error_code error;
  if (!std::filesystem::exists(parts_->part, error)) parts_->make();
  parts_->go_on();
}

ForecastFile::~ForecastFile() = default;

std::int64_t ForecastFile::finished(std::size_t start, std::size_t member) const {
  return parts_->finished[parts_->place(start, member)];
}

void ForecastFile::read(std::size_t start, std::size_t member, std::int64_t lead,
                        std::span<float> state) const {
  expect(lead >= 1 && lead <= finished(start, member), "a lead that is not there was asked for");
  const auto [first, count] = parts_->box(start, member, lead);
  const std::size_t points = state.size() / parts_->fields.size();
  for (std::size_t channel = 0; channel < parts_->fields.size(); ++channel) {
    parts_->fields[channel].read_box<float>(first, count, state.subspan(channel * points, points));
  }
}

void ForecastFile::write(std::size_t start, std::size_t member, std::span<const float> state) {
  std::int64_t& done = parts_->finished[parts_->place(start, member)];
  expect(done < parts_->setting.leads, "more leads were written than announced");
  const auto [first, count] = parts_->box(start, member, done + 1);
  const std::size_t points = state.size() / parts_->fields.size();
  for (std::size_t channel = 0; channel < parts_->fields.size(); ++channel) {
    parts_->fields[channel].write_box<float>(first, count, state.subspan(channel * points, points));
  }
  ++done;
}

void ForecastFile::keep() {
  // What is counted has to be there before it is counted.
  parts_->file->flush();
  const std::vector<std::int32_t> counted(parts_->finished.begin(), parts_->finished.end());
  const Shape& shape = parts_->counts->shape();
  parts_->counts->write_box<std::int32_t>(Shape(shape.size(), 0), shape, counted);
  parts_->file->flush();
}

void ForecastFile::publish() {
  keep();
  parts_->fields.clear();
  parts_->counts.reset();
  parts_->file->close();
  parts_->file.reset();
  if (std::rename(parts_->part.c_str(), parts_->path.c_str()) != 0) {
    throw IoError(parts_->path, "cannot be renamed into place");
  }
  const auto folder = std::filesystem::path(parts_->path).parent_path();
  sync_directory(folder.empty() ? "." : folder.string());
}

}  // namespace garonne::data
