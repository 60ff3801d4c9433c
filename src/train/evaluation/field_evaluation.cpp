#include "train/evaluation/field_evaluation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "data/generate/shared_work.hpp"
#include "train/evaluation/climatology.hpp"
#include "train/evaluation/ensemble_skill.hpp"
#include "train/evaluation/field_predictor.hpp"
#include "train/evaluation/initial_noise.hpp"
#include "train/evaluation/missing_values.hpp"
#include "train/evaluation/option_check.hpp"
#include "train/evaluation/power_spectrum.hpp"
#include "train/evaluation/skill.hpp"

namespace garonne::train {
namespace {

constexpr std::int64_t usual_lead_steps = 20;
constexpr std::size_t most_spectra = 4;

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
  query_ = field_query(config, has_validation(config) ? Part::Validation : Part::Training);
  const std::string& path = query_.path;
  query_.push_forward = 0;
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
  const bool timed = info.in_seconds && !info.pairs;
  setting_.lead_seconds = timed ? info.frame_seconds * static_cast<double>(query_.lead) : 0;
  setting_.sources = info.pairs ? std::vector<std::string>{"model", "climatology"}
                                : std::vector<std::string>{"model", "persistence", "climatology"};
  require_positive("--members", options_.members);
  if (options_.members > 1) {
    if (info.pairs) {
      throw ConfigError("--members", fmt::format("{}", options_.members),
                        "must be 1: pairs have no initial state");
    }
    setting_.members = options_.members;
    setting_.noise = options_.noise;
    setting_.sources.emplace_back("ensemble mean");
  }
  setting_.channels = info.target_channels;
  const Weighting weighting = make_weighting(options_.weighting, info);
  setting_.weighting = weighting.name;
  setting_.row_weights = weighting.rows;
  setting_.fields = info;
  find_starts(dataset);
  setting_.samples = static_cast<std::int64_t>(starts_.size());
  if (info.has_times && !info.pairs) {
    for (const std::int64_t start : starts_)
      setting_.start_times.push_back(dataset.frame_time(start));
  }
  for (std::int64_t map = 0; map < std::min(options_.maps, setting_.samples); ++map) {
    setting_.map_samples.push_back(samples_[static_cast<std::size_t>(map)]);
  }
  Climatology::check(field_query(config, Part::Training), options_.climatology);
  if (options_.map_leads != 0) require_positive("--map-leads", options_.map_leads);
  const std::int64_t map_leads = options_.map_leads == 0 ? setting_.leads : options_.map_leads;
  setting_.map_leads = spread_leads(setting_.leads, static_cast<std::size_t>(map_leads));
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

// Makes one forecast after the other.
//
// What is kept of one is two lists: facts, of each lead the five numbers of FieldSkill by source
// and channel and of an ensemble the numbers of EnsembleSkill by channel, then truth and model
// spectra [spectrum_leads, channels, wavenumbers], then the time of each lead; and values, of a
// sample of which maps are kept truth and forecast at map_leads.
class FieldEvaluation::Forecasts {
 public:
  Forecasts(const FieldEvaluation& evaluation, Climatology climatology)
      : setting_(evaluation.setting_),
        query_(evaluation.query_),
        starts_(evaluation.starts_),
        samples_(evaluation.samples_),
        noise_{evaluation.options_.noise, evaluation.options_.seed},
        inputs_(evaluation.workload_.statistics().inputs),
        dataset_(data::FieldDataset::open(evaluation.query_)),
        predictor_(evaluation.trained_, evaluation.workload_),
        climatology_(std::move(climatology)),
        weighting_{setting_.weighting, setting_.row_weights},
        spectrum_(setting_.fields, weighting_),
        spectrum_leads_(spread_leads(setting_.leads, most_spectra)),
        missing_(evaluation.workload_.statistics(),
                 static_cast<std::int64_t>(setting_.fields.input_channels.size()),
                 static_cast<std::int64_t>(setting_.channels.size()),
                 setting_.fields.plane(setting_.fields.points[0])) {
    const data::FieldDatasetInfo& info = dataset_.info();
    const auto values = static_cast<std::size_t>(info.target_values(info.points[0]));
    for (auto* field : {&truth_, &forecast_, &persisted_, &usual_}) field->resize(values);
  }

  const FieldPredictor& predictor() const { return predictor_; }
  // The parts of results that no forecast changes.
  data::SkillResults empty_results() const {
    data::SkillResults results;
    results.spectrum = spectrum_.kind();
    results.spectrum_leads = spectrum_leads_;
    results.wavenumbers = static_cast<std::int64_t>(spectrum_.size());
    results.truth_spectrum.assign(spectrum_values(), 0.0);
    results.model_spectrum.assign(spectrum_values(), 0.0);
    return results;
  }

  data::MadeSample make(std::size_t number);

 private:
  std::size_t channels() const { return setting_.channels.size(); }
  std::size_t spectrum_values() const {
    return spectrum_leads_.size() * channels() * spectrum_.size();
  }
  std::span<const float> channel_of(std::span<const float> all, std::size_t channel) const {
    const std::size_t points = truth_.size() / channels();
    return all.subspan(channel * points, points);
  }
  void compare(std::span<const float> values, std::vector<double>& facts) const {
    compare(values, truth_, facts);
  }
  void compare(std::span<const float> values, std::span<const float> truth,
               std::vector<double>& facts) const {
    for (std::size_t channel = 0; channel < channels(); ++channel) {
      const FieldSkill skill = field_skill(channel_of(values, channel), channel_of(truth, channel),
                                           channel_of(usual_, channel), weighting_);
      facts.insert(facts.end(), {static_cast<double>(skill.points), skill.squared_error, skill.bias,
                                 skill.relative_l2, skill.anomaly_correlation});
    }
  }
  // What is not there at the start cannot persist: such points do not count.
  void compare_persisted(std::vector<double>& facts) const {
    std::vector<float> known = truth_;
    for (std::size_t i = 0; i < known.size(); ++i) {
      if (std::isnan(persisted_[i])) known[i] = persisted_[i];
    }
    compare(persisted_, known, facts);
  }
  void compare_ensemble(const std::vector<std::vector<float>>& forecasts,
                        std::vector<double>& facts);
  void add_spectra(std::size_t lead, std::span<double> truth, std::span<double> model) {
    // Where the truth has no value the two agree, so that no difference comes from there.
    std::vector<float> known = truth_;
    for (std::size_t i = 0; i < known.size(); ++i) {
      if (std::isnan(known[i])) known[i] = forecast_[i];
    }
    for (std::size_t channel = 0; channel < channels(); ++channel) {
      const std::size_t at = (lead * channels() + channel) * spectrum_.size();
      spectrum_.add(channel_of(known, channel), truth.subspan(at, spectrum_.size()));
      spectrum_.add(channel_of(forecast_, channel), model.subspan(at, spectrum_.size()));
    }
  }

  const data::SkillSetting& setting_;
  const data::FieldQuery& query_;
  const std::vector<std::int64_t>& starts_;
  const std::vector<std::int64_t>& samples_;
  InitialNoise noise_;
  const data::FieldMoments& inputs_;
  data::FieldDataset dataset_;
  FieldPredictor predictor_;
  Climatology climatology_;
  Weighting weighting_;
  PowerSpectrum spectrum_;
  std::vector<std::int64_t> spectrum_leads_;
  MissingValues missing_;
  std::vector<float> truth_, forecast_, persisted_, usual_;  // [target channels, points…]
};

// Forecasts of all members [target channels, points…] to numbers, those of their mean first.
void FieldEvaluation::Forecasts::compare_ensemble(const std::vector<std::vector<float>>& forecasts,
                                                  std::vector<double>& facts) {
  std::vector<float> mean(truth_.size());
  for (std::size_t i = 0; i < mean.size(); ++i) {
    double sum = 0;
    for (const auto& forecast : forecasts) sum += static_cast<double>(forecast[i]);
    mean[i] = static_cast<float>(sum / static_cast<double>(forecasts.size()));
  }
  compare(mean, facts);
  for (std::size_t channel = 0; channel < channels(); ++channel) {
    std::vector<std::span<const float>> members;
    for (const auto& forecast : forecasts) members.push_back(channel_of(forecast, channel));
    const EnsembleSkill skill = ensemble_skill(members, channel_of(truth_, channel), weighting_);
    facts.insert(facts.end(), {static_cast<double>(skill.points), skill.crps, skill.variance,
                               skill.squared_error});
    facts.insert(facts.end(), skill.ranks.begin(), skill.ranks.end());
  }
}

data::MadeSample FieldEvaluation::Forecasts::make(std::size_t number) {
  const data::FieldDatasetInfo& info = dataset_.info();
  const auto leads = static_cast<std::size_t>(setting_.leads);
  const std::int64_t start = starts_[number];
  std::vector<float> loaded(static_cast<std::size_t>(info.input_values(info.points[0])));
  dataset_.read(samples_[number], {}, loaded.data(), nullptr);
  missing_.fill_inputs(loaded);
  // Of each member; the first one is the model's forecast.
  const auto members = static_cast<std::size_t>(setting_.members);
  std::vector<ForecastWindow> windows;
  for (std::size_t member = 0; member < members; ++member) {
    std::vector<float> states = loaded;
    add_initial_noise(noise_, info, inputs_, start, member, states);
    windows.emplace_back(info, std::move(states));
  }
  std::vector<std::vector<float>> forecasts(members, std::vector<float>(truth_.size()));
  if (!info.pairs) dataset_.read_frame(start, {}, nullptr, persisted_.data());
  data::MadeSample made;
  std::vector<double> spectra(2 * spectrum_values());
  std::vector<double> times;
  for (std::size_t lead = 0; lead < leads; ++lead) {
    const auto step = static_cast<std::int64_t>(lead) + 1;
    times.push_back(info.has_times && !info.pairs ? dataset_.frame_time(start + step * query_.lead)
                                                  : std::numeric_limits<double>::quiet_NaN());
    std::vector<float> state;
    const bool goes_on = lead + 1 < leads;
    if (goes_on) state.resize(windows[0].frame_values());
    dataset_.read_frame(info.pairs ? start : start + step * query_.lead, {},
                        goes_on && windows[0].prescribed() ? state.data() : nullptr, truth_.data());
    missing_.fill_inputs(state);
    for (std::size_t member = 0; member < members; ++member) {
      predictor_.predict(windows[member].values(), forecasts[member]);
      missing_.fill_forecast(truth_, forecasts[member]);
      if (goes_on) windows[member].push(forecasts[member], state);
    }
    forecast_ = forecasts[0];
    climatology_.at(times.back(), usual_);
    compare(forecast_, made.facts);
    if (!info.pairs) compare_persisted(made.facts);
    compare(usual_, made.facts);
    if (members > 1) compare_ensemble(forecasts, made.facts);
    const std::size_t spectrum = place_of(spectrum_leads_, step);
    if (spectrum < spectrum_leads_.size()) {
      add_spectra(spectrum, std::span(spectra).first(spectrum_values()),
                  std::span(spectra).last(spectrum_values()));
    }
    const bool mapped = place_of(setting_.map_leads, step) < setting_.map_leads.size();
    if (number < setting_.map_samples.size() && mapped) {
      made.values.insert(made.values.end(), truth_.begin(), truth_.end());
      made.values.insert(made.values.end(), forecast_.begin(), forecast_.end());
    }
  }
  made.facts.insert(made.facts.end(), spectra.begin(), spectra.end());
  made.facts.insert(made.facts.end(), times.begin(), times.end());
  return made;
}

// Adds up what forecasts are worth, in the order in which they are given.
class FieldEvaluation::Sums {
 public:
  Sums(const data::SkillSetting& setting, data::SkillResults empty)
      : setting_(setting),
        results_(std::move(empty)),
        table_(setting.sources.size(), static_cast<std::size_t>(setting.leads),
               setting.channels.size()),
        ensembles_(static_cast<std::size_t>(setting.leads), setting.channels.size(),
                   static_cast<std::size_t>(setting.members)) {}

  void take(std::size_t number, const data::MadeSample& made, const MapSink& map);
  data::SkillResults finish();

 private:
  const data::SkillSetting& setting_;
  data::SkillResults results_;
  SkillTable table_;
  EnsembleTable ensembles_;
};

void FieldEvaluation::Sums::take(std::size_t number, const data::MadeSample& made,
                                 const MapSink& map) {
  const auto leads = static_cast<std::size_t>(setting_.leads);
  auto fact = made.facts.begin();
  for (std::size_t lead = 0; lead < leads; ++lead) {
    for (std::size_t source = 0; source < setting_.sources.size(); ++source) {
      for (std::size_t channel = 0; channel < setting_.channels.size(); ++channel, fact += 5) {
        table_.add(source, lead, channel,
                   {static_cast<std::int64_t>(fact[0]), fact[1], fact[2], fact[3], fact[4]});
      }
    }
    if (setting_.members < 2) continue;
    for (std::size_t channel = 0; channel < setting_.channels.size(); ++channel) {
      const auto ranks = fact + 4;
      const auto end = ranks + setting_.members + 1;
      ensembles_.add(lead, channel,
                     {static_cast<std::int64_t>(fact[0]), fact[1], fact[2], fact[3], {ranks, end}});
      fact = end;
    }
  }
  for (auto* spectra : {&results_.truth_spectrum, &results_.model_spectrum}) {
    for (double& value : *spectra) value += *fact++;
  }
  if (number >= setting_.map_samples.size()) return;
  const std::size_t maps = setting_.map_leads.size();
  const std::size_t values = made.values.size() / (2 * maps);
  const auto part = [&](std::size_t place) {
    return std::span(made.values).subspan(place * values, values);
  };
  for (std::size_t lead = 0; lead < maps; ++lead) {
    map(number, lead, fact[setting_.map_leads[lead] - 1], part(2 * lead), part(2 * lead + 1));
  }
}

data::SkillResults FieldEvaluation::Sums::finish() {
  for (auto* sums : {&results_.truth_spectrum, &results_.model_spectrum}) {
    for (double& value : *sums) value /= static_cast<double>(setting_.samples);
  }
  results_.rmse = table_.rmse();
  results_.bias = table_.bias();
  results_.relative_l2 = table_.relative_l2();
  results_.anomaly_correlation = table_.anomaly_correlation();
  if (setting_.members > 1) {
    results_.crps = ensembles_.crps();
    results_.spread = ensembles_.spread();
    results_.spread_skill_ratio = ensembles_.spread_skill_ratio();
    results_.ranks = ensembles_.ranks();
  }
  return std::move(results_);
}

data::SkillResults FieldEvaluation::run(dist::Session& session, const MapSink& map,
                                        bool show_progress) {
  Climatology climatology = Climatology::of(field_query(trained_.config, Part::Training),
                                            options_.climatology, session, show_progress);
  setting_.climatology = climatology.description();
  std::optional<Forecasts> forecasts;
  session.agree([&] { forecasts.emplace(*this, std::move(climatology)); });
  Sums sums(setting_, forecasts->empty_results());
  data::make_and_take(
      session, "forecasts", show_progress, setting_.samples,
      [&](std::int64_t number) { return forecasts->make(static_cast<std::size_t>(number)); },
      [&](std::int64_t number, const data::MadeSample& made) {
        sums.take(static_cast<std::size_t>(number), made, map);
      });
  peak_bytes_ = session.all_reduce_max(std::vector{forecasts->predictor().peak_bytes()})[0];
  planned_peak_bytes_ = forecasts->predictor().planned_peak_bytes();
  return session.rank() == 0 ? sums.finish() : data::SkillResults();
}

}  // namespace garonne::train
