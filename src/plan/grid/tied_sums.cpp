#include "plan/grid/tied_sums.hpp"

#include <algorithm>

#include "plan/step/launches.hpp"

namespace garonne::plan {

TiedParameters tied_parameters(const DeviceParameters& device) {
  TiedParameters tied;
  tied.device = device.tied_to;
  for (const TrainedParameter& parameter : device.completed) {
    if (!parameter.tied) continue;
    tied.parameters.push_back(parameter);
    tied.elements += parameter.elements;
    tied.largest_elements = std::max(tied.largest_elements, parameter.elements);
  }
  return tied;
}

double tied_sum_seconds(const TiedParameters& tied, const GridCandidate& candidate,
                        const StepShape& step, const TiedLinks& links, bool host_waits) {
  double seconds = 0;
  for (const TrainedParameter& parameter : tied.parameters) {
    const std::int64_t bytes = parameter.elements * step.gradient_wire_bytes();
    const auto sum = [&](Operation operation, int members, const GroupLink& link) {
      const bool all = operation == Operation::AllReduce;
      const double sending =
          collective_seconds(all ? "all-reduce" : "reduce-scatter", bytes, members, link);
      // A host that has waited for messages has nothing issued ahead.
      const double issuing =
          host_waits ? step.kernels.issue *
                           launches_of_collective(operation, step.gradient_wire.has_value())
                     : 0;
      seconds += std::max(sending, issuing);
    };
    if (parameter.sums_over_tensor) sum(Operation::AllReduce, candidate.shape.tensor, links.tensor);
    sum(Operation::AllReduce, 2, links.tied);
    if (candidate.shape.data > 1) {
      sum(candidate.zero == 0 ? Operation::AllReduce : Operation::ReduceScatter,
          candidate.shape.data, links.data);
    }
  }
  return seconds;
}

}  // namespace garonne::plan
