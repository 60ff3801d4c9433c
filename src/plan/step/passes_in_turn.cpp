#include "plan/step/passes_in_turn.hpp"

#include <algorithm>

namespace garonne::plan {

bool passes_can_overlap(const StepShape& step) {
  const bool gathers = step.zero == 3 && step.data_group.size() > 1;
  const auto& order = step.pipeline.order;
  return step.tensor_group.size() > 1 && !gathers &&
         std::any_of(order.begin(), order.end(),
                     [](const PipelineOperation& operation) { return operation.overlaps_next; });
}

StepShape with_passes_in_turn(StepShape step) {
  for (PipelineOperation& operation : step.pipeline.order) operation.overlaps_next = false;
  return step;
}

}  // namespace garonne::plan
