// The rules of thumb of Narayanan et al. (SC'21): as few model-parallel ranks as memory asks for,
// tensor ranks up to the devices of a node first and stages after that, all other ranks for data;
// then the micro-batch with the least (M + p − 1)(t_f + t_b). Stages of equally many layers, 1F1B,
// an optimizer in shards over the data ranks, everything run again where it does not fit else.
#include <algorithm>
#include <utility>
#include <vector>

#include "plan/planners/stage_costs.hpp"

namespace garonne::plan {
namespace {

// Tensor and pipeline ranks in the order in which they are tried.
std::vector<std::pair<int, int>> sizes_in_order(PlannerProblem& problem) {
  std::vector<int> tensor_sizes;
  for (const std::int64_t tensor : divisors_of(problem.ranks())) {
    if (tensor <= problem.inputs().limits.most_tensor &&
        problem.blocks(static_cast<int>(tensor), 1) != nullptr)
      tensor_sizes.push_back(static_cast<int>(tensor));
  }
  std::vector<std::pair<int, int>> sizes;
  for (const int tensor : tensor_sizes) sizes.emplace_back(tensor, 1);
  if (tensor_sizes.empty()) return sizes;
  for (const std::int64_t pipeline : divisors_of(problem.ranks() / tensor_sizes.back())) {
    if (pipeline > 1) sizes.emplace_back(tensor_sizes.back(), static_cast<int>(pipeline));
  }
  return sizes;
}

bool fits(const PlannerProblem& problem, const std::vector<StageCost>& stages,
          std::int64_t micro_batches, bool recomputes, int data) {
  const int number = static_cast<int>(stages.size());
  for (int s = 0; s < number; ++s) {
    const std::int64_t bytes =
        stage_bytes(problem.inputs().step, stages[static_cast<std::size_t>(s)],
                    in_flight_1f1b(s, number, micro_batches), recomputes, data);
    if (bytes > problem.inputs().budget_bytes) return false;
  }
  return true;
}

}  // namespace

NamedChoice choose_megatron(PlannerProblem& problem) {
  for (const auto& [tensor, pipeline] : sizes_in_order(problem)) {
    const GridShape shape{problem.ranks() / tensor / pipeline, pipeline, tensor};
    if (problem.global_batch() % shape.data != 0) continue;
    const std::int64_t batch = problem.global_batch() / shape.data;
    NamedChoice best;
    bool recomputes = false;
    for (const std::int64_t micro_batch : divisors_of(batch)) {
      const auto* blocks = problem.blocks(tensor, micro_batch);
      if (blocks == nullptr) continue;
      const std::vector<StageCost> stages = equal_stages(*blocks, pipeline);
      if (stages.empty()) continue;
      const std::int64_t micro_batches = batch / micro_batch;
      const bool keeps = fits(problem, stages, micro_batches, false, shape.data);
      if (!keeps && !fits(problem, stages, micro_batches, true, shape.data)) continue;
      double slowest = 0;
      for (const StageCost& stage : stages) slowest = std::max(slowest, stage.seconds(!keeps));
      const double seconds = static_cast<double>(micro_batches + pipeline - 1) * slowest;
      if (seconds >= best.seconds) continue;
      best.seconds = seconds;
      best.micro_batch = micro_batch;
      best.placed = placed_equally(*blocks, shape, !keeps);
      recomputes = !keeps;
    }
    if (best.placed.empty()) continue;
    best.schedule = "1f1b";
    best.words = words_of(shape, best.micro_batch, recomputes);
    set_grid(problem, shape, best.schedule, shape.data > 1 ? 1 : 0, best.micro_batch, best);
    return best;
  }
  return nothing_fits();
}

}  // namespace garonne::plan
