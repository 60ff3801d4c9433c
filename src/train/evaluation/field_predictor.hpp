// A trained operator as what makes forecasts: one step of it, and the states that a step takes. For
// the sources of this room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/fields/field_dataset.hpp"
#include "exec/executor.hpp"
#include "plan/program/replay.hpp"
#include "train/checkpoint/trained_model.hpp"
#include "train/workload/field_workload.hpp"

namespace garonne::train {

// One application of the model to a state in the units of the data.
class FieldPredictor {
 public:
  // PlanError where the predicting Program does not fit the budget of the run.
  FieldPredictor(TrainedModel& trained, const FieldWorkload& workload);
  FieldPredictor(const FieldPredictor&) = delete;
  FieldPredictor& operator=(const FieldPredictor&) = delete;

  // input [frames · channels, points…] is normalised in place; prediction [channels, points…].
  void predict(std::vector<float> input, std::span<float> prediction);

  std::int64_t planned_peak_bytes() const { return prediction_.peak_bytes; }
  std::int64_t peak_bytes() const { return peak_bytes_; }

 private:
  plan::Program forward_program(const TrainedModel& trained) const;

  const data::FieldStatistics& statistics_;
  std::size_t channels_;
  std::int64_t points_;
  nn::Model model_;
  plan::Program program_;
  plan::Prediction prediction_;
  exec::RankResources resources_;
  std::optional<exec::Executor> executor_;  // of members: made where they stay
  std::int64_t peak_bytes_ = 0;
};

// The input of the model along a forecast: states [input channels, points…], oldest first.
class ForecastWindow {
 public:
  ForecastWindow(const data::FieldDatasetInfo& info, std::vector<float> loaded);

  const std::vector<float>& values() const { return values_; }
  // Whether some channels come from the data all along.
  bool prescribed() const;
  // Moves on by one step. `state` [input channels, points…] is what the data hold at the new time,
  // of which only channels that are not predicted are used.
  void push(std::span<const float> prediction, std::vector<float> state);
  std::size_t frame_values() const { return frame_values_; }

 private:
  std::size_t frame_values_;
  std::vector<float> values_;
  std::vector<std::ptrdiff_t> predicted_;  // by input channel: which target it is; -1 = none
};

}  // namespace garonne::train
