// PipeDream-2BW (Narayanan et al., ICML'21): equal stages in so many copies, the micro-batch, and
// whether everything is run again; the most samples a second in a pipeline that never empties. A
// micro-batch takes as long as the slowest stage with its messages, or its part of the sum of
// gradients, whichever is longer. Two versions of the parameters are held, and a step has at least
// as many micro-batches as there are stages. No tensor ranks.
#include <algorithm>
#include <vector>

#include "plan/model/group_links.hpp"
#include "plan/planners/stage_costs.hpp"

namespace garonne::plan {
namespace {

bool fits(const PlannerInputs& inputs, const std::vector<StageCost>& stages, bool recomputes) {
  const int number = static_cast<int>(stages.size());
  for (int s = 0; s < number; ++s) {
    const StageCost& stage = stages[static_cast<std::size_t>(s)];
    const std::int64_t second_version =
        stage.trained.elements * inputs.step.element_bytes.parameter;
    if (stage_bytes(inputs.step, stage, number - s, recomputes) + second_version >
        inputs.budget_bytes)
      return false;
  }
  return true;
}

// Of a micro-batch.
double steady_seconds(const PlannerInputs& inputs, const GridShape& shape,
                      const std::vector<StageCost>& stages, std::int64_t micro_batches,
                      bool recomputes, const Link& hop, const GroupLink& data) {
  double slowest = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    double seconds = stages[s].seconds(recomputes);
    if (s > 0) seconds += message_seconds(stages[s].input_bytes, hop);
    if (s + 1 < stages.size()) seconds += message_seconds(stages[s + 1].input_bytes, hop);
    const std::int64_t gradients = stages[s].trained.elements * inputs.step.element_bytes.gradient;
    const double reducing =
        shape.data > 1 ? collective_seconds("all-reduce", gradients, shape.data, data) : 0;
    slowest = std::max({slowest, seconds, reducing / static_cast<double>(micro_batches)});
  }
  return slowest;
}

}  // namespace

NamedChoice choose_double_buffered_weights(PlannerProblem& problem) {
  NamedChoice best;
  GridShape best_shape;
  bool best_recomputes = false;
  for (const std::int64_t depth : divisors_of(problem.ranks())) {
    if (depth > problem.inputs().limits.blocks) break;
    const GridShape shape{static_cast<int>(problem.ranks() / depth), static_cast<int>(depth), 1};
    if (problem.global_batch() % shape.data != 0) continue;
    const Link hop = hop_link(problem.inputs().cluster, shape);
    const GroupLink data = GridLinks(problem.inputs().cluster, Grid(shape)).data();
    const std::int64_t batch = problem.global_batch() / shape.data;
    for (const std::int64_t micro_batch : divisors_of(batch)) {
      const std::int64_t micro_batches = batch / micro_batch;
      const auto* blocks = problem.blocks(1, micro_batch);
      if (blocks == nullptr || micro_batches < depth) continue;
      const std::vector<StageCost> stages = equal_stages(*blocks, shape.pipeline);
      if (stages.empty()) continue;
      for (const bool recomputes : {false, true}) {
        if (!fits(problem.inputs(), stages, recomputes)) continue;
        const double seconds =
            static_cast<double>(micro_batches) *
            steady_seconds(problem.inputs(), shape, stages, micro_batches, recomputes, hop, data);
        if (seconds >= best.seconds) continue;
        best.seconds = seconds;
        best.micro_batch = micro_batch;
        best.placed = placed_equally(*blocks, shape, recomputes);
        best_shape = shape;
        best_recomputes = recomputes;
      }
    }
  }
  if (best.placed.empty()) return nothing_fits();
  best.schedule = "1f1b";
  best.words = words_of(best_shape, best.micro_batch, best_recomputes);
  if (best_shape.pipeline > 1)
    add_note("weights a step late are not run: 1f1b with a flush after each step", best);
  set_grid(problem, best_shape, best.schedule, 0, best.micro_batch, best);
  return best;
}

}  // namespace garonne::plan
