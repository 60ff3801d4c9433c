#include "train/field_evaluation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "exec/executor.hpp"
#include "nn/field_model.hpp"
#include "train/climatology.hpp"
#include "train/missing_values.hpp"
#include "train/power_spectrum.hpp"
#include "train/skill.hpp"

namespace garonne::train {
namespace {

constexpr std::int64_t usual_lead_steps = 20;
constexpr std::size_t most_spectra = 4;
constexpr std::size_t most_map_leads = 3;

void require_positive(const char* key, std::int64_t value) {
  if (value < 1) throw ConfigError(key, fmt::format("{}", value), "must be at least 1");
}

// Leads from the first to the last, about evenly apart.
std::vector<std::int64_t> spread_leads(std::int64_t leads, std::size_t most) {
  std::vector<std::int64_t> chosen;
  const auto count = std::min<std::int64_t>(leads, static_cast<std::int64_t>(most));
  for (std::int64_t i = 0; i < count; ++i) {
    chosen.push_back(count == 1 ? leads : 1 + i * (leads - 1) / (count - 1));
  }
  return chosen;
}

// The most steps of the model that a forecast from within a run can have, and be compared with.
std::int64_t most_lead_steps(const data::FieldDataset& dataset, std::int64_t history,
                             std::int64_t lead) {
  std::int64_t most = 0;
  std::int64_t past = 0;
  for (std::int64_t frame = 0; frame < dataset.info().frames; ++frame) {
    const std::int64_t after = dataset.frames_after(frame);
    if (past == history * lead) most = std::max(most, after / lead);
    past = after == 0 ? 0 : past + 1;
  }
  return most;
}

// One application of the model to a state in the units of the data.
class Predictor {
 public:
  Predictor(TrainedModel& trained, const FieldWorkload& workload)
      : statistics_(workload.statistics()),
        channels_(static_cast<std::size_t>(workload.facts().fields.target_channels)),
        points_(workload.facts().fields.count()),
        model_(nn::make_field_predictor(trained.config.model, one_step(workload), 1,
                                        trained.setup.declaration)),
        program_(forward_program(trained)),
        prediction_(plan::replay(program_)) {
    if (prediction_.peak_bytes > trained.budget_bytes) {
      throw PlanError(prediction_.peak_bytes, trained.budget_bytes, "that is for a forecast");
    }
    machine_ = trained.machine();
  }

  // input [frames · channels, points…] is normalised in place; prediction [channels, points…].
  void predict(std::vector<float> input, std::span<float> prediction) {
    if (!executor_) executor_.emplace(model_, program_, machine_);
    statistics_.inputs.normalise(0, points_, input);
    exec::StepInputs inputs;
    inputs.training = false;
    inputs.load = [&](int) {
      exec::HostBatch batch;
      batch.samples = {0};
      batch.fields["input"] = std::move(input);
      return batch;
    };
    const exec::StepOutputs outputs = executor_->run(inputs);
    peak_bytes_ = std::max(peak_bytes_, outputs.peak_bytes);
    const auto points = static_cast<std::size_t>(points_);
    expect(outputs.report.size() == points * channels_ && prediction.size() == points * channels_,
           "a prediction has another size than its target");
    for (std::size_t point = 0; point < points; ++point) {
      for (std::size_t channel = 0; channel < channels_; ++channel) {
        prediction[channel * points + point] =
            static_cast<float>(outputs.report[point * channels_ + channel]);
      }
    }
    statistics_.targets.restore(0, points_, prediction);
  }

  std::int64_t planned_peak_bytes() const { return prediction_.peak_bytes; }
  std::int64_t peak_bytes() const { return peak_bytes_; }

 private:
  static nn::FieldShape one_step(const FieldWorkload& workload) {
    nn::FieldShape shape = workload.facts().fields;
    shape.rollout = 1;
    shape.push_forward = 0;
    return shape;
  }
  plan::Program forward_program(const TrainedModel& trained) const {
    plan::StepShape step = trained.setup.step;
    step.micro_batches = 1;
    return plan::make_forward_program(model_.graph, step, model_.graph.nodes.back().output);
  }

  const data::FieldStatistics& statistics_;
  std::size_t channels_;
  std::int64_t points_;
  nn::Model model_;
  plan::Program program_;
  plan::Prediction prediction_;
  exec::Machine machine_;
  std::optional<exec::Executor> executor_;  // of members: made where they stay
  std::int64_t peak_bytes_ = 0;
};

// The input of the model along a forecast: states [input channels, points…], oldest first.
class Window {
 public:
  Window(const data::FieldDatasetInfo& info, std::vector<float> loaded)
      : frame_values_(loaded.size() / static_cast<std::size_t>(info.input_frames)),
        values_(std::move(loaded)) {
    const auto& targets = info.target_channels;
    for (const auto& channel : info.input_channels) {
      const auto found = std::find(targets.begin(), targets.end(), channel);
      predicted_.push_back(found == targets.end() ? -1 : found - targets.begin());
    }
  }

  const std::vector<float>& values() const { return values_; }
  // Whether some channels come from the data all along.
  bool prescribed() const {
    return std::find(predicted_.begin(), predicted_.end(), -1) != predicted_.end();
  }
  // Moves on by one step. `state` [input channels, points…] is what the data hold at the new time,
  // of which only channels that are not predicted are used.
  void push(std::span<const float> prediction, std::vector<float> state) {
    const std::size_t points = frame_values_ / predicted_.size();
    for (std::size_t channel = 0; channel < predicted_.size(); ++channel) {
      if (predicted_[channel] < 0) continue;
      std::copy_n(prediction.begin() + predicted_[channel] * static_cast<std::ptrdiff_t>(points),
                  points, state.begin() + static_cast<std::ptrdiff_t>(channel * points));
    }
    std::rotate(values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(frame_values_),
                values_.end());
    std::copy(state.begin(), state.end(),
              values_.end() - static_cast<std::ptrdiff_t>(frame_values_));
  }
  std::size_t frame_values() const { return frame_values_; }

 private:
  std::size_t frame_values_;
  std::vector<float> values_;
  std::vector<std::ptrdiff_t> predicted_;  // by input channel: which target it is; -1 = none
};

std::size_t place_of(const std::vector<std::int64_t>& values, std::int64_t wanted) {
  return static_cast<std::size_t>(std::find(values.begin(), values.end(), wanted) - values.begin());
}

}  // namespace

FieldEvaluation::FieldEvaluation(TrainedModel& trained, const FieldWorkload& workload,
                                 std::string run, FieldEvaluationOptions options)
    : trained_(trained), workload_(workload), options_(std::move(options)) {
  require_positive("--samples", options_.samples);
  if (options_.lead_steps != 0) require_positive("--lead-steps", options_.lead_steps);
  const RunConfig& config = trained.config;
  const std::string path =
      config.data.validation.empty() ? config.data.path : config.data.validation;
  query_ = field_query(config, path);
  query_.rollout = query_.stride = 1;
  data::FieldDataset dataset = data::FieldDataset::open(query_);
  const data::FieldDatasetInfo& info = dataset.info();
  const std::int64_t most = info.pairs ? 1 : most_lead_steps(dataset, query_.history, query_.lead);
  setting_.leads = options_.lead_steps > 0 ? options_.lead_steps : std::min(usual_lead_steps, most);
  if (setting_.leads > most) {
    throw ConfigError(
        "--lead-steps", fmt::format("{}", setting_.leads),
        info.pairs
            ? std::string("must be 1: pairs have no time")
            : fmt::format("is more than {}, the steps of the longest forecast that {} can be "
                          "compared with",
                          most, path));
  }
  setting_.run = std::move(run);
  setting_.step = trained.step;
  setting_.data = path;
  setting_.lead_seconds = info.pairs ? 0 : info.frame_seconds * static_cast<double>(query_.lead);
  setting_.sources = info.pairs ? std::vector<std::string>{"model", "climatology"}
                                : std::vector<std::string>{"model", "persistence", "climatology"};
  setting_.channels = info.target_channels;
  const Weighting weighting = make_weighting(options_.weighting, info);
  setting_.weighting = weighting.name;
  setting_.row_weights = weighting.rows;
  setting_.fields = info;
  find_starts(dataset);
  setting_.samples = static_cast<std::int64_t>(starts_.size());
  for (std::int64_t map = 0; map < std::min(options_.maps, setting_.samples); ++map) {
    setting_.map_samples.push_back(samples_[static_cast<std::size_t>(map)]);
  }
  setting_.map_leads = spread_leads(setting_.leads, most_map_leads);
}

void FieldEvaluation::find_starts(data::FieldDataset& dataset) {
  const data::FieldDatasetInfo& info = dataset.info();
  std::vector<std::pair<std::int64_t, std::int64_t>> windows;  // frame, sample
  std::int64_t past = 0;
  std::int64_t sample = 0;
  for (std::int64_t frame = 0; frame < info.frames; ++frame) {
    if (info.pairs) {
      windows.emplace_back(frame, frame);
      continue;
    }
    const std::int64_t after = dataset.frames_after(frame);
    if (past >= query_.history * query_.lead && after >= query_.lead) {
      if (after >= setting_.leads * query_.lead) windows.emplace_back(frame, sample);
      ++sample;
    }
    past = after == 0 ? 0 : past + 1;
  }
  expect(info.pairs || sample == info.samples,
         "frames and samples of a dataset do not go together");
  const auto all = static_cast<std::int64_t>(windows.size());
  const std::int64_t wanted = std::min(options_.samples, all);
  for (std::int64_t i = 0; i < wanted; ++i) {
    const auto& [frame, number] = windows[static_cast<std::size_t>(i * all / wanted)];
    starts_.push_back(frame);
    samples_.push_back(number);
  }
}

// What is filled while forecasts run.
struct FieldEvaluation::Rolling {
  data::FieldDataset dataset;
  Predictor predictor;
  Climatology climatology;
  Weighting weighting;
  PowerSpectrum spectrum;
  SkillTable table;
  data::SkillResults results;
  std::vector<float> truth, forecast, persisted, usual;  // [target channels, points…]

  void compare(std::size_t source, std::size_t lead, std::span<const float> values,
               std::size_t channels);
  void add_spectra(std::size_t lead, std::size_t channels);
};

void FieldEvaluation::Rolling::compare(std::size_t source, std::size_t lead,
                                       std::span<const float> values, std::size_t channels) {
  const std::size_t points = truth.size() / channels;
  for (std::size_t channel = 0; channel < channels; ++channel) {
    const auto part = [&](std::span<const float> all) {
      return all.subspan(channel * points, points);
    };
    table.add(source, lead, channel,
              field_skill(part(values), part(truth), part(usual), weighting));
  }
}

void FieldEvaluation::Rolling::add_spectra(std::size_t lead, std::size_t channels) {
  const std::size_t points = truth.size() / channels;
  const std::size_t size = spectrum.size();
  // Where the truth has no value the two agree, so that no difference comes from there.
  std::vector<float> known = truth;
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (std::isnan(known[i])) known[i] = forecast[i];
  }
  for (std::size_t channel = 0; channel < channels; ++channel) {
    const std::size_t at = (lead * channels + channel) * size;
    spectrum.add(std::span(known).subspan(channel * points, points),
                 std::span(results.truth_spectrum).subspan(at, size));
    spectrum.add(std::span(forecast).subspan(channel * points, points),
                 std::span(results.model_spectrum).subspan(at, size));
  }
}

data::SkillResults FieldEvaluation::run(const MapSink& map, const EvaluationProgress& progress) {
  const auto leads = static_cast<std::size_t>(setting_.leads);
  const std::size_t channels = setting_.channels.size();
  const Weighting weighting{setting_.weighting, setting_.row_weights};
  Rolling rolling{
      data::FieldDataset::open(query_),
      Predictor(trained_, workload_),
      Climatology::of(
          field_query(trained_.config, trained_.config.data.path), options_.climatology,
          [&](std::int64_t done, std::int64_t all) { progress("climatology", done, all); }),
      weighting,
      PowerSpectrum(setting_.fields, weighting),
      SkillTable(setting_.sources.size(), leads, channels),
      {},
      {},
      {},
      {},
      {}};
  setting_.climatology = rolling.climatology.description();
  const data::FieldDatasetInfo& info = rolling.dataset.info();
  const MissingValues missing(workload_.statistics(),
                              static_cast<std::int64_t>(info.input_channels.size()),
                              static_cast<std::int64_t>(channels), info.plane(info.points[0]));
  const auto values = static_cast<std::size_t>(info.target_values(info.points[0]));
  for (auto* field : {&rolling.truth, &rolling.forecast, &rolling.persisted, &rolling.usual}) {
    field->resize(values);
  }
  data::SkillResults& results = rolling.results;
  results.spectrum = rolling.spectrum.kind();
  results.spectrum_leads = spread_leads(setting_.leads, most_spectra);
  results.wavenumbers = static_cast<std::int64_t>(rolling.spectrum.size());
  const std::size_t spectra = results.spectrum_leads.size() * channels * rolling.spectrum.size();
  results.truth_spectrum.assign(spectra, 0.0);
  results.model_spectrum.assign(spectra, 0.0);

  const std::int64_t work = setting_.samples * setting_.leads;
  std::int64_t done = 0;
  for (std::size_t number = 0; number < starts_.size(); ++number) {
    const std::int64_t start = starts_[number];
    std::vector<float> loaded(static_cast<std::size_t>(info.input_values(info.points[0])));
    rolling.dataset.read(samples_[number], {}, loaded.data(), nullptr);
    missing.fill_inputs(loaded);
    Window window(info, std::move(loaded));
    const double start_seconds = info.has_times && !info.pairs
                                     ? rolling.dataset.sample_time(samples_[number])
                                     : std::numeric_limits<double>::quiet_NaN();
    if (!info.pairs) {
      rolling.dataset.read_frame(start, {}, nullptr, rolling.persisted.data());
      missing.fill_forecast(rolling.persisted, rolling.persisted);
    }
    for (std::size_t lead = 0; lead < leads; ++lead) {
      const auto step = static_cast<std::int64_t>(lead) + 1;
      const double seconds = start_seconds + static_cast<double>(step) * setting_.lead_seconds;
      rolling.predictor.predict(window.values(), rolling.forecast);
      std::vector<float> state;
      const bool goes_on = lead + 1 < leads;
      if (goes_on) state.resize(window.frame_values());
      rolling.dataset.read_frame(info.pairs ? start : start + step * query_.lead, {},
                                 goes_on && window.prescribed() ? state.data() : nullptr,
                                 rolling.truth.data());
      missing.fill_inputs(state);
      missing.fill_forecast(rolling.truth, rolling.forecast);
      rolling.climatology.at(seconds, rolling.usual);
      std::size_t source = 0;
      rolling.compare(source++, lead, rolling.forecast, channels);
      if (!info.pairs) rolling.compare(source++, lead, rolling.persisted, channels);
      rolling.compare(source, lead, rolling.usual, channels);
      const std::size_t spectrum = place_of(results.spectrum_leads, step);
      if (spectrum < results.spectrum_leads.size()) rolling.add_spectra(spectrum, channels);
      const std::size_t map_lead = place_of(setting_.map_leads, step);
      if (number < setting_.map_samples.size() && map_lead < setting_.map_leads.size()) {
        map(number, map_lead, seconds, rolling.truth, rolling.forecast);
      }
      if (goes_on) window.push(rolling.forecast, std::move(state));
      progress("forecasts", ++done, work);
    }
  }
  for (auto* sums : {&results.truth_spectrum, &results.model_spectrum}) {
    for (double& value : *sums) value /= static_cast<double>(setting_.samples);
  }
  results.rmse = rolling.table.rmse();
  results.bias = rolling.table.bias();
  results.relative_l2 = rolling.table.relative_l2();
  results.anomaly_correlation = rolling.table.anomaly_correlation();
  peak_bytes_ = rolling.predictor.peak_bytes();
  planned_peak_bytes_ = rolling.predictor.planned_peak_bytes();
  return results;
}

}  // namespace garonne::train
