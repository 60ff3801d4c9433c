#include "data/statistics/skill_file.hpp"

#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/partial_file.hpp"
#include "data/hdf5/hdf5.hpp"

namespace garonne::data {
namespace {

using Shape = std::vector<std::int64_t>;

std::int64_t length(const auto& values) {
  return static_cast<std::int64_t>(values.size());
}

template <typename T>
void write_array(Hdf5File& file, const std::string& name, const Shape& shape,
                 std::span<const T> values) {
  auto dataset = file.create_array<T>(name, shape);
  if (!values.empty()) dataset.template write_box<T>(Shape(shape.size(), 0), shape, values);
}

void describe(Hdf5File& file, const std::string& name, const std::string& meaning) {
  file.attributes(name).write("description", meaning);
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
};

void SkillFile::Parts::write_setting() {
  Hdf5File& out = *file;
  out.write_attribute("format", "garonne.skill");
  out.write_attribute("format_version", std::int64_t{1});
  out.write_attribute("run", setting.run);
  out.write_attribute("step", setting.step);
  out.write_attribute("data", setting.data);
  out.write_attribute("samples", setting.samples);
  out.write_attribute("weighting", setting.weighting);
  out.write_attribute("grid", setting.fields.grid);
  out.attributes("/").write("lead_seconds", std::vector<double>{setting.lead_seconds});
  out.create_texts("source", setting.sources);
  out.create_texts("channel", setting.channels);
  std::vector<std::int64_t> leads;
  for (std::int64_t lead = 1; lead <= setting.leads; ++lead) leads.push_back(lead);
  write_array<std::int64_t>(out, "lead", {setting.leads}, leads);
  describe(out, "lead", "steps of the model");
  write_array<double>(out, "row_weight", {length(setting.row_weights)}, setting.row_weights);
  describe(out, "row_weight", "what each row of the first axis counts in means, of mean 1");
  // Groups that come with a dataset would hold the time of their making.
  if (!setting.fields.coordinates.empty()) out.create_group("coordinates");
  for (std::size_t axis = 0; axis < setting.fields.coordinates.size(); ++axis) {
    const std::vector<double>& values = setting.fields.coordinates[axis];
    if (values.empty()) continue;
    write_array<double>(out, "coordinates/" + setting.fields.axes[axis], {length(values)}, values);
  }
}

SkillFile::SkillFile(const std::string& path, const SkillSetting& setting)
    : parts_(std::make_unique<Parts>(path, setting)) {
  parts_->file.emplace(Hdf5File::create(parts_->partial.path()));
  parts_->write_setting();
  if (setting.map_samples.empty() || setting.map_leads.empty()) return;
  Hdf5File& out = *parts_->file;
  out.create_group("maps");
  write_array<std::int64_t>(out, "maps/sample", {length(setting.map_samples)}, setting.map_samples);
  write_array<std::int64_t>(out, "maps/lead", {length(setting.map_leads)}, setting.map_leads);
  Shape shape = {length(setting.map_samples), length(setting.map_leads), length(setting.channels)};
  shape.insert(shape.end(), setting.fields.points.begin(), setting.fields.points.end());
  parts_->truth.emplace(out.create_array<float>("maps/truth", shape));
  parts_->forecast.emplace(out.create_array<float>("maps/forecast", shape));
  parts_->times.resize(setting.map_samples.size() * setting.map_leads.size());
}

SkillFile::~SkillFile() = default;

void SkillFile::write_map(std::size_t sample, std::size_t lead, double seconds,
                          std::span<const float> truth, std::span<const float> forecast) {
  const SkillSetting& setting = parts_->setting;
  expect(sample < setting.map_samples.size() && lead < setting.map_leads.size(),
         "a map was written that was not announced");
  Shape first = {static_cast<std::int64_t>(sample), static_cast<std::int64_t>(lead), 0};
  Shape count = {1, 1, length(setting.channels)};
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
  const Shape shape = {length(setting.sources), setting.leads, length(setting.channels)};
  write_array<double>(out, "rmse", shape, results.rmse);
  describe(out, "rmse",
           "[source, lead, channel] root of the mean over samples of weighted mean squared errors");
  write_array<double>(out, "bias", shape, results.bias);
  describe(out, "bias", "[source, lead, channel] mean over samples of weighted mean errors");
  write_array<double>(out, "relative_l2", shape, results.relative_l2);
  describe(out, "relative_l2",
           "[source, lead, channel] mean over samples of |error| / |truth|, weighted norms");
  write_array<double>(out, "acc", shape, results.anomaly_correlation);
  describe(out, "acc",
           "[source, lead, channel] mean over samples of weighted correlations of anomalies from "
           "the climatology");
  if (!results.spectrum_leads.empty()) {
    const Shape spectra = {length(results.spectrum_leads), length(setting.channels),
                           results.wavenumbers};
    out.create_group("spectra");
    out.attributes("spectra").write("kind", results.spectrum);
    write_array<std::int64_t>(out, "spectra/lead", {length(results.spectrum_leads)},
                              results.spectrum_leads);
    write_array<double>(out, "spectra/truth", spectra, results.truth_spectrum);
    write_array<double>(out, "spectra/model", spectra, results.model_spectrum);
  }
  if (parts_->truth) {
    write_array<double>(out, "maps/time", {length(setting.map_samples), length(setting.map_leads)},
                        parts_->times);
    describe(out, "maps/time", "seconds since 1970 of the calendar of the data; NaN = unknown");
    parts_->truth.reset();
    parts_->forecast.reset();
  }
  out.close();
  parts_->file.reset();
  parts_->partial.publish();
}

}  // namespace garonne::data
