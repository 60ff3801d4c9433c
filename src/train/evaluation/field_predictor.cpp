#include "train/evaluation/field_predictor.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "nn/fields/field_model.hpp"

namespace garonne::train {
namespace {

nn::FieldShape one_step(const FieldWorkload& workload) {
  nn::FieldShape shape = workload.facts().fields;
  shape.rollout = 1;
  shape.push_forward = 0;
  return shape;
}

}  // namespace

FieldPredictor::FieldPredictor(TrainedModel& trained, const FieldWorkload& workload)
    : statistics_(workload.statistics()),
      channels_(static_cast<std::size_t>(workload.facts().fields.target_channels)),
      points_(workload.facts().fields.count()),
      model_(nn::make_field_predictor(trained.config.model, one_step(workload), 1,
                                      trained.setup.declaration)),
      program_(forward_program(trained)),
      prediction_(plan::replay(program_)) {
  if (prediction_.peak_bytes > trained.budget_bytes) {
    throw PlanError(prediction_.peak_bytes, trained.budget_bytes,
                    "that is for a forecast" + trained.placement.advice());
  }
  resources_ = trained.resources();
}

plan::Program FieldPredictor::forward_program(const TrainedModel& trained) const {
  plan::StepShape step = trained.setup.step;
  step.micro_batches = 1;
  return trained.placement.place(
      plan::make_forward_program(model_.graph, step, model_.graph.nodes.back().output));
}

void FieldPredictor::predict(std::vector<float> input, std::span<float> prediction) {
  if (!executor_) executor_.emplace(model_, program_, resources_);
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

ForecastWindow::ForecastWindow(const data::FieldDatasetInfo& info, std::vector<float> loaded)
    : frame_values_(loaded.size() / static_cast<std::size_t>(info.input_frames)),
      values_(std::move(loaded)) {
  const auto& targets = info.target_channels;
  for (const auto& channel : info.input_channels) {
    const auto found = std::find(targets.begin(), targets.end(), channel);
    predicted_.push_back(found == targets.end() ? -1 : found - targets.begin());
  }
}

bool ForecastWindow::prescribed() const {
  return std::find(predicted_.begin(), predicted_.end(), -1) != predicted_.end();
}

void ForecastWindow::push(std::span<const float> prediction, std::vector<float> state) {
  const std::size_t points = frame_values_ / predicted_.size();
  for (std::size_t channel = 0; channel < predicted_.size(); ++channel) {
    if (predicted_[channel] < 0) continue;
    std::copy_n(prediction.begin() + predicted_[channel] * static_cast<std::ptrdiff_t>(points),
                points, state.begin() + static_cast<std::ptrdiff_t>(channel * points));
  }
  std::rotate(values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(frame_values_),
              values_.end());
  std::copy(state.begin(), state.end(), values_.end() - static_cast<std::ptrdiff_t>(frame_values_));
}

}  // namespace garonne::train
