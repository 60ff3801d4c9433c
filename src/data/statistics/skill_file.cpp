#include "data/statistics/skill_file.hpp"

#include <numeric>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/partial_file.hpp"
#include "data/fields/netcdf_axes.hpp"
#include "data/hdf5/hdf5.hpp"
#include "data/hdf5/hdf5_output.hpp"

namespace garonne::data {
namespace {

using Shape = std::vector<std::int64_t>;

std::int64_t length_of(const auto& values) {
  return static_cast<std::int64_t>(values.size());
}

using Names = std::vector<std::string>;

template <typename T>
void write_array(Hdf5File& file, const std::string& name, const Shape& shape,
                 std::span<const T> values) {
  auto dataset = file.create_array<T>(name, shape);
  if (!values.empty()) dataset.template write_box<T>(Shape(shape.size(), 0), shape, values);
}

void describe(Hdf5File& file, const std::string& name, const std::string& meaning) {
  file.attributes(name).write("long_name", meaning);
}

// Names the dimensions of `group` + `name`, which are scales of the group.
void attach(Hdf5File& file, const std::string& group, const std::string& name,
            const Names& dimensions) {
  for (std::size_t axis = 0; axis < dimensions.size(); ++axis) {
    file.attach_scale(group + name, static_cast<int>(axis), group + dimensions[axis]);
  }
}

void write_texts(Hdf5File& file, const std::string& name, const Names& texts) {
  file.create_long_texts(name, texts);
  file.make_scale(name);
}

}  // namespace

struct SkillFile::Parts {
  Parts(const std::string& path, SkillSetting given) : partial(path), setting(std::move(given)) {}

  PartialFile partial;  // before the file: removed after that is closed
  SkillSetting setting;
  std::optional<Hdf5File> file;
  std::optional<Hdf5Dataset> truth;
  std::optional<Hdf5Dataset> forecast;
  std::vector<double> times;  // [map samples, map leads]

  void write_setting();
  void write_channels(const std::string& group);
  void write_steps(const std::string& group, std::span<const std::int64_t> steps);
  void make_maps();
  void write_ensembles(const SkillResults& results);
};

// Each group has its own, since readers of netCDF look at one group.
void SkillFile::Parts::write_channels(const std::string& group) {
  write_texts(*file, group + "channel", setting.channels);
  Names units = setting.fields.target_units;
  units.resize(setting.channels.size());
  file->create_long_texts(group + "channel_units", units);
  attach(*file, group, "channel_units", {"channel"});
}

void SkillFile::Parts::write_steps(const std::string& group, std::span<const std::int64_t> steps) {
  write_numbers(*file, group + "lead", steps);
  describe(*file, group + "lead", "steps of the model");
  write_leads(*file, group + "lead_time", steps, setting.lead_seconds);
  attach(*file, group, "lead_time", {"lead"});
}

void SkillFile::Parts::write_setting() {
  Hdf5File& out = *file;
  out.write_attribute("Conventions", "CF-1.11");
  out.write_attribute("format", "garonne.skill");
  out.write_attribute("format_version", std::int64_t{2});
  out.write_attribute("run", setting.run);
  out.write_attribute("step", setting.step);
  out.write_attribute("data", setting.data);
  out.write_attribute("samples", setting.samples);
  out.write_attribute("weighting", setting.weighting);
  out.write_attribute("grid", setting.fields.grid);
  out.attributes("/").write_value("lead_seconds", setting.lead_seconds);
  write_texts(out, "source", setting.sources);
  write_channels("");
  std::vector<std::int64_t> leads;
  for (std::int64_t lead = 1; lead <= setting.leads; ++lead) leads.push_back(lead);
  write_steps("", leads);
  const Names axes = write_axes(out, "", setting.fields);
  write_array<double>(out, "row_weight", {length_of(setting.row_weights)}, setting.row_weights);
  describe(out, "row_weight", "what each row of the first axis counts in means, of mean 1");
  attach(out, "", "row_weight", {axes[0]});
  if (setting.start_times.empty() || !setting.fields.has_times) return;
  std::vector<std::int64_t> samples(setting.start_times.size());
  std::iota(samples.begin(), samples.end(), 0);
  write_numbers(out, "sample", samples);
  write_times(out, "start_time", {length_of(samples)}, setting.start_times,
              setting.fields.calendar);
  describe(out, "start_time", "time of the state that a forecast starts from");
  attach(out, "", "start_time", {"sample"});
}

void SkillFile::Parts::make_maps() {
  Hdf5File& out = *file;
  out.create_group("maps");
  write_numbers(out, "maps/sample", setting.map_samples);
  write_channels("maps/");
  write_steps("maps/", setting.map_leads);
  Names dimensions = {"sample", "lead", "channel"};
  for (const std::string& axis : write_axes(out, "maps/", setting.fields))
    dimensions.push_back(axis);
  Shape shape = {length_of(setting.map_samples), length_of(setting.map_leads),
                 length_of(setting.channels)};
  shape.insert(shape.end(), setting.fields.points.begin(), setting.fields.points.end());
  for (const char* name : {"truth", "forecast"}) {
    const std::string path = std::string("maps/") + name;
    out.create_array<float>(path, shape);
    attach(out, "maps/", name, dimensions);
    out.attributes(path).write("coordinates",
                               std::string(setting.fields.has_times ? "time lead_time channel_units"
                                                                    : "lead_time channel_units"));
  }
  truth.emplace(out.dataset("maps/truth"));
  forecast.emplace(out.dataset("maps/forecast"));
  times.resize(setting.map_samples.size() * setting.map_leads.size());
}

void SkillFile::Parts::write_ensembles(const SkillResults& results) {
  Hdf5File& out = *file;
  out.write_attribute("members", setting.members);
  out.attributes("/").write_value("noise", setting.noise);
  const auto write = [&](const std::string& name, std::span<const double> values, Names dimensions,
                         Shape shape, const std::string& meaning) {
    write_array<double>(out, name, shape, values);
    describe(out, name, meaning);
    attach(out, "", name, dimensions);
    out.attributes(name).write("coordinates", std::string("lead_time channel_units"));
  };
  const Names dimensions = {"lead", "channel"};
  const Shape shape = {setting.leads, length_of(setting.channels)};
  write("crps", results.crps, dimensions, shape, "fair CRPS of the ensembles, in channel_units");
  write("spread", results.spread, dimensions, shape,
        "root of the mean variance of the members, in channel_units");
  write("spread_skill_ratio", results.spread_skill_ratio, dimensions, shape,
        "sqrt((members + 1) / members) spread / RMSE of the ensemble mean");
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(setting.members + 1));
  std::iota(numbers.begin(), numbers.end(), 0);
  write_numbers(out, "rank", numbers);
  describe(out, "rank", "members below the truth");
  write("rank_histogram", results.ranks, {"lead", "channel", "rank"},
        {setting.leads, length_of(setting.channels), setting.members + 1},
        "share of points with so many members below the truth");
}

SkillFile::SkillFile(const std::string& path, const SkillSetting& setting) {
  expect_output("--output", path, netcdf_output("a file of skill of Garonne", "garonne.skill"));
  parts_ = std::make_unique<Parts>(path, setting);
  parts_->file.emplace(Hdf5File::create(parts_->partial.path()));
  parts_->write_setting();
  if (!setting.map_samples.empty() && !setting.map_leads.empty()) parts_->make_maps();
}

SkillFile::~SkillFile() = default;

void SkillFile::write_map(std::size_t sample, std::size_t lead, double seconds,
                          std::span<const float> truth, std::span<const float> forecast) {
  const SkillSetting& setting = parts_->setting;
  expect(sample < setting.map_samples.size() && lead < setting.map_leads.size(),
         "a map was written that was not announced");
  Shape first = {static_cast<std::int64_t>(sample), static_cast<std::int64_t>(lead), 0};
  Shape count = {1, 1, length_of(setting.channels)};
  first.resize(3 + setting.fields.points.size(), 0);
  count.insert(count.end(), setting.fields.points.begin(), setting.fields.points.end());
  parts_->truth->write_box<float>(first, count, truth);
  parts_->forecast->write_box<float>(first, count, forecast);
  parts_->times[sample * setting.map_leads.size() + lead] = seconds;
}

void SkillFile::finish(const std::string& climatology, const SkillResults& results) {
  const SkillSetting& setting = parts_->setting;
  Hdf5File& out = *parts_->file;
  out.write_attribute("climatology", climatology);
  const Shape shape = {length_of(setting.sources), setting.leads, length_of(setting.channels)};
  const auto write_table = [&](const std::string& name, std::span<const double> values,
                               const std::string& meaning) {
    write_array<double>(out, name, shape, values);
    describe(out, name, meaning);
    attach(out, "", name, {"source", "lead", "channel"});
    out.attributes(name).write("coordinates", std::string("lead_time channel_units"));
  };
  write_table("rmse", results.rmse,
              "root of the mean over samples of weighted mean squared errors, in channel_units");
  write_table("bias", results.bias, "mean over samples of weighted mean errors, in channel_units");
  write_table("relative_l2", results.relative_l2,
              "mean over samples of |error| / |truth|, weighted norms");
  write_table("acc", results.anomaly_correlation,
              "mean over samples of weighted correlations of anomalies from the climatology");
  if (!results.crps.empty()) parts_->write_ensembles(results);
  if (!results.spectrum_leads.empty()) {
    const Shape spectra = {length_of(results.spectrum_leads), length_of(setting.channels),
                           results.wavenumbers};
    out.create_group("spectra");
    out.attributes("spectra").write("kind", results.spectrum);
    parts_->write_channels("spectra/");
    parts_->write_steps("spectra/", results.spectrum_leads);
    const std::string scale = results.spectrum == "spherical" ? "degree" : "wavenumber";
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(results.wavenumbers));
    std::iota(numbers.begin(), numbers.end(), 0);
    write_numbers(out, "spectra/" + scale, numbers);
    write_array<double>(out, "spectra/truth", spectra, results.truth_spectrum);
    write_array<double>(out, "spectra/model", spectra, results.model_spectrum);
    for (const char* name : {"truth", "model"}) {
      attach(out, "spectra/", name, {"lead", "channel", scale});
    }
  }
  if (parts_->truth) {
    const Shape by_map = {length_of(setting.map_samples), length_of(setting.map_leads)};
    if (setting.fields.has_times) {
      write_times(out, "maps/time", by_map, parts_->times, setting.fields.calendar);
      describe(out, "maps/time", "time that truth and forecast are of");
      attach(out, "maps/", "time", {"sample", "lead"});
    }
    parts_->truth.reset();
    parts_->forecast.reset();
  }
  out.close();
  parts_->file.reset();
  parts_->partial.publish();
}

}  // namespace garonne::data
