// Forecasts of a trained operator, rolled out and compared with what happened, beside persistence
// and climatology.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "data/skill_file.hpp"
#include "train/field_workload.hpp"
#include "train/trained_model.hpp"

namespace garonne::train {

struct FieldEvaluationOptions {
  std::int64_t samples = 32;    // forecasts at most, evenly spread over those that the data hold
  std::int64_t lead_steps = 0;  // 0 = 20, or what the data hold; 1 for pairs
  std::string weighting = "auto";
  std::string climatology = "auto";
  std::int64_t maps = 1;  // forecasts of which maps are kept
};

// A forecast of which a map is kept, as SkillFile::write_map.
using MapSink = std::function<void(std::size_t sample, std::size_t lead, double seconds,
                                   std::span<const float> truth, std::span<const float> forecast)>;
using EvaluationProgress =
    std::function<void(const std::string& what, std::int64_t done, std::int64_t all)>;

// What there is to evaluate is settled on construction; run() does it. Memory does not grow with
// samples or leads. On one rank.
//
// The model is applied to its own predictions. Channels of the input that it does not predict are
// taken from the data at the time that the input is of. Forecasts start from data.validation, or
// from data.path where that is not set. The climatology is that of data.path.
class FieldEvaluation {
 public:
  // Throws ConfigError for numbers below 1, for more leads than the data hold, for leads of pairs,
  // and as make_weighting; IoError for data that cannot be read.
  FieldEvaluation(TrainedModel& trained, const FieldWorkload& workload, std::string run,
                  FieldEvaluationOptions options);

  const data::SkillSetting& setting() const { return setting_; }

  // Reads the climatology, then rolls out. Throws PlanError when the predicting Program does not
  // fit the budget of the run, ConfigError as Climatology::of, and IoError.
  data::SkillResults run(const MapSink& map, const EvaluationProgress& progress);

  // Highest bytes of a forecast, and those planned; after run().
  std::int64_t peak_bytes() const { return peak_bytes_; }
  std::int64_t planned_peak_bytes() const { return planned_peak_bytes_; }

 private:
  struct Rolling;
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
