// Forecasts of a trained operator from states of the data on into times that nobody has seen.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/fields/forecast_file.hpp"
#include "dist/session.hpp"
#include "train/checkpoint/trained_model.hpp"
#include "train/workload/field_workload.hpp"

namespace garonne::train {

struct FieldForecastOptions {
  std::string data;               // files of the initial states; empty = those of the run
  std::vector<std::string> from;  // dates, or numbers of frames from 0; empty = the last frame
  std::int64_t steps = 0;
  std::int64_t members = 1;
  double noise = 0.05;  // of members but the first, in deviations of each channel
  std::uint64_t seed = 1;
  int compression = 1;
};

// What is forecast is settled on construction; run() does it. Memory does not grow with steps.
//
// The model is applied to its own predictions. Channels of the input that it does not predict are
// taken from the data at the time that the input is of, or are the same at all times. Member 0
// starts from the state of the data; the others add white noise to each channel that is predicted,
// the same to all input frames, a function of seed, member, start and point. Points without a value
// in the initial state (data.missing = "mask") have none in the forecast.
class FieldForecast {
 public:
  // Steps are those of what the model was trained on, whatever the files of the initial states
  // hold. Throws ConfigError for numbers below 1, dates that are not in the data or without the
  // frames before them that the model takes (which have to lie its steps apart), pairs, and more
  // steps than channels that come from the data reach; IoError for data that cannot be read.
  FieldForecast(TrainedModel& trained, const FieldWorkload& workload, std::string run,
                const FieldForecastOptions& options);

  const data::ForecastSetting& setting() const { return setting_; }
  // What a user should know of it, a sentence each.
  const std::vector<std::string>& notes() const { return notes_; }

  // Rank r makes the forecasts (start, member) i with i mod ranks = r; rank 0 writes `file`, which
  // is null elsewhere, after each step, and goes on behind what it holds. A forecast does not
  // depend on the number of ranks. PlanError on all ranks when the predicting Program does not fit
  // the budget of the run; IoError. Collective.
  void run(dist::Session& session, data::ForecastFile* file, bool show_progress);

  // Steps that run() made, and that were there; of all ranks.
  std::int64_t made() const { return made_; }
  std::int64_t found() const { return found_; }
  // Highest bytes of a step on any rank, and those planned; after run().
  std::int64_t peak_bytes() const { return peak_bytes_; }
  std::int64_t planned_peak_bytes() const { return planned_peak_bytes_; }

 private:
  class Member;
  void settle_step(const data::FieldStep& own);
  // Of forecast `number`.
  std::size_t start_of(std::int64_t number) const;
  std::size_t member_of(std::int64_t number) const;
  std::vector<std::int64_t> steps_there(dist::Session& session, data::ForecastFile* file,
                                        std::int64_t first, std::int64_t end) const;
  std::int64_t find_start(const data::FieldDataset& dataset, const std::string& text) const;

  TrainedModel& trained_;
  const FieldWorkload& workload_;
  data::FieldQuery query_;
  data::ForecastSetting setting_;
  std::vector<std::string> notes_;
  std::int64_t made_ = 0;
  std::int64_t found_ = 0;
  std::int64_t peak_bytes_ = 0;
  std::int64_t planned_peak_bytes_ = 0;
};

}  // namespace garonne::train
