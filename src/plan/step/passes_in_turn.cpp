#include "plan/step/passes_in_turn.hpp"

#include <algorithm>

namespace garonne::plan {

PassesInTurn why_in_turn(std::int64_t tensor_ranks, std::int64_t data_ranks, int zero,
                         bool device_waits) {
  if (tensor_ranks <= 1) return PassesInTurn::NoTensorRanks;
  if (zero == 3 && data_ranks > 1) return PassesInTurn::GathersParameters;
  return device_waits ? PassesInTurn::DeviceWaits : PassesInTurn::No;
}

PassesInTurn why_in_turn(const StepShape& step) {
  return why_in_turn(static_cast<std::int64_t>(step.tensor_group.size()),
                     static_cast<std::int64_t>(step.data_group.size()), step.zero,
                     step.passes_in_turn);
}

bool passes_can_overlap(const StepShape& step) {
  const auto& order = step.pipeline.order;
  return why_in_turn(step) == PassesInTurn::No &&
         std::any_of(order.begin(), order.end(),
                     [](const PipelineOperation& operation) { return operation.overlaps_next; });
}

StepShape with_passes_in_turn(StepShape step) {
  step.passes_in_turn = true;
  return step;
}

}  // namespace garonne::plan
