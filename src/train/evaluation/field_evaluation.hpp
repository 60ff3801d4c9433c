// Forecasts of a trained operator, rolled out and compared with what happened, beside persistence
// and climatology.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "data/statistics/skill_file.hpp"
#include "dist/session.hpp"
#include "train/checkpoint/trained_model.hpp"
#include "train/workload/field_workload.hpp"

namespace garonne::train {

struct FieldEvaluationOptions {
  std::int64_t samples = 32;    // forecasts at most, evenly spread over those that the data hold
  std::int64_t lead_steps = 0;  // 0 = 20, or what the data hold; 1 for pairs
  std::string weighting = "auto";
  std::string climatology = "auto";
  std::int64_t members = 1;    // more: ensembles, whose first member has no noise
  double noise = 0.05;         // of the initial states of the others, in deviations of each channel
  std::uint64_t seed = 1;      // of that
  std::int64_t maps = 1;       // forecasts of which maps are kept
  std::int64_t map_leads = 3;  // leads of these, evenly spread; 0 = all
};

// A forecast of which a map is kept, as SkillFile::write_map.
using MapSink = std::function<void(std::size_t sample, std::size_t lead, double seconds,
                                   std::span<const float> truth, std::span<const float> forecast)>;

// What there is to evaluate is settled on construction; run() does it. Memory does not grow with
// samples or leads, but for the maps of a sample.
//
// The model is applied to its own predictions. Channels of the input that it does not predict are
// taken from the data at the time that the input is of. Forecasts start from the validation data,
// or from those of the training where a run has none. The climatology is that of the training data.
// With members, the model is the first one, without noise; the mean of all is a source of its own,
// and the ensembles have scores.
class FieldEvaluation {
 public:
  // Throws ConfigError for numbers below 1, for more leads than the data hold, for leads of pairs,
  // and as make_weighting; IoError for data that cannot be read.
  FieldEvaluation(TrainedModel& trained, const FieldWorkload& workload, std::string run,
                  FieldEvaluationOptions options);

  const data::SkillSetting& setting() const { return setting_; }

  // Reads the climatology, then rolls out; rank r the forecasts i with i mod ranks = r. Sums are
  // over samples in their order, on rank 0, so that ranks of as many threads give the same bits
  // whatever their number. On rank 0 `map` gets the maps in their order and the results are
  // returned; they are empty elsewhere. Throws on all ranks (Session::agree) when the predicting
  // Program does not fit the budget of the run, and as Climatology::of; IoError. Collective.
  data::SkillResults run(dist::Session& session, const MapSink& map, bool show_progress = false);

  // Highest bytes of a forecast on any rank, and those planned; after run().
  std::int64_t peak_bytes() const { return peak_bytes_; }
  std::int64_t planned_peak_bytes() const { return planned_peak_bytes_; }

 private:
  class Forecasts;
  class Sums;
  void find_starts(data::FieldDataset& dataset);

  TrainedModel& trained_;
  const FieldWorkload& workload_;
  FieldEvaluationOptions options_;
  data::FieldQuery query_;             // of what forecasts start from
  std::vector<std::int64_t> starts_;   // frames that are evaluated
  std::vector<std::int64_t> samples_;  // their numbers among the windows of query_
  data::SkillSetting setting_;
  std::int64_t peak_bytes_ = 0;
  std::int64_t planned_peak_bytes_ = 0;
};

}  // namespace garonne::train
