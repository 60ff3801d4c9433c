// As vTrain (Bang et al., MICRO'24) is used: every data, pipeline and tensor size and micro-batch,
// each simulated task by task. Stages of equally many layers, 1F1B, everything run again; gradients
// are summed when a stage is done, then parameters are updated. What does not fit is left out.
#include <algorithm>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "plan/model/group_links.hpp"
#include "plan/pipeline/schedule_registry.hpp"
#include "plan/pipeline/simulation.hpp"
#include "plan/planners/stage_costs.hpp"

namespace garonne::plan {
namespace {

class Simulated {
 public:
  Simulated(const PlannerProblem& problem, const GridShape& shape)
      : inputs_(problem.inputs()),
        shape_(shape),
        hop_(hop_link(inputs_.cluster, shape)),
        data_(GridLinks(inputs_.cluster, Grid(shape)).data()) {}

  bool fits(const std::vector<StageCost>& stages, std::int64_t micro_batches) const {
    for (int s = 0; s < shape_.pipeline; ++s) {
      const std::int64_t in_flight = in_flight_1f1b(s, shape_.pipeline, micro_batches);
      if (stage_bytes(inputs_.step, stages[static_cast<std::size_t>(s)], in_flight, true) >
          inputs_.budget_bytes)
        return false;
    }
    return true;
  }

  // No step takes less.
  static double least_seconds(const std::vector<StageCost>& stages, std::int64_t micro_batches) {
    double most = 0;
    for (const StageCost& stage : stages) most = std::max(most, stage.seconds(true));
    return static_cast<double>(micro_batches) * most;
  }

  // None where 1F1B cannot be had with so many micro-batches.
  std::optional<double> seconds(const std::vector<StageCost>& stages,
                                std::int64_t micro_batches) const {
    std::vector<double> done = {static_cast<double>(micro_batches) * stages[0].seconds(true)};
    if (shape_.pipeline > 1) {
      const auto timeline = simulate(stages, micro_batches);
      if (!timeline) return std::nullopt;
      done.clear();
      for (const auto& device : timeline->timeline) done.push_back(device.back().end);
    }
    double last = 0;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const std::int64_t gradients =
          stages[s].trained.elements * inputs_.step.element_bytes.gradient;
      const double reducing =
          shape_.data > 1 ? collective_seconds("all-reduce", gradients, shape_.data, data_) : 0;
      const double updating =
          static_cast<double>(stages[s].trained.elements) * inputs_.step.update_seconds_per_element;
      last = std::max(last, done[s] + reducing + updating);
    }
    return last;
  }

 private:
  std::optional<PipelineOutcome> simulate(const std::vector<StageCost>& stages,
                                          std::int64_t micro_batches) const {
    if (micro_batches > most_pipeline_micro_batches ||
        micro_batches * shape_.pipeline > most_pipeline_passes)
      return std::nullopt;
    PipelineRequest request;
    request.stages = shape_.pipeline;
    request.micro_batches = static_cast<int>(micro_batches);
    PipelineCosts costs;
    std::int64_t most = 0;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      costs.chunks.push_back({stages[s].forward, stages[s].backward + stages[s].again, 0});
      if (s > 0) most = std::max(most, stages[s].input_bytes);
    }
    costs.hop_seconds = message_seconds(most, hop_);
    try {
      return simulate_pipeline(make_pipeline_schedule("1f1b", request), costs);
    } catch (const ConfigError&) {
      return std::nullopt;
    }
  }

  const PlannerInputs& inputs_;
  GridShape shape_;
  Link hop_;
  GroupLink data_;
};

}  // namespace

NamedChoice choose_vtrain(PlannerProblem& problem) {
  NamedChoice best;
  GridShape best_shape;
  for (const std::int64_t tensor : divisors_of(problem.ranks())) {
    if (tensor > problem.inputs().limits.most_tensor) break;
    for (const std::int64_t pipeline : divisors_of(problem.ranks() / tensor)) {
      if (pipeline > problem.inputs().limits.blocks) break;
      const std::int64_t data = problem.ranks() / tensor / pipeline;
      if (problem.global_batch() % data != 0) continue;
      const GridShape shape{static_cast<int>(data), static_cast<int>(pipeline),
                            static_cast<int>(tensor)};
      const Simulated model(problem, shape);
      for (const std::int64_t micro_batch : divisors_of(problem.global_batch() / data)) {
        const auto* blocks = problem.blocks(shape.tensor, micro_batch);
        if (blocks == nullptr) continue;
        const std::vector<StageCost> stages = equal_stages(*blocks, shape.pipeline);
        const std::int64_t micro_batches = problem.global_batch() / data / micro_batch;
        if (stages.empty() || !model.fits(stages, micro_batches) ||
            Simulated::least_seconds(stages, micro_batches) >= best.seconds)
          continue;
        const auto seconds = model.seconds(stages, micro_batches);
        if (!seconds || *seconds >= best.seconds) continue;
        best.seconds = *seconds;
        best.micro_batch = micro_batch;
        best.placed = placed_equally(*blocks, shape, true);
        best_shape = shape;
      }
    }
  }
  if (best.placed.empty()) return nothing_fits();
  best.schedule = "1f1b";
  best.words = words_of(best_shape, best.micro_batch, true);
  set_grid(problem, best_shape, best.schedule, 0, best.micro_batch, best);
  return best;
}

}  // namespace garonne::plan
