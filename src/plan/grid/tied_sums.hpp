// Sums over the two stages that have copies of the same parameters (tied embeddings, or the two
// directions of a pipeline), as estimates have them.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/grid/device_parameters.hpp"
#include "plan/grid/grid_candidate.hpp"
#include "plan/model/group_links.hpp"
#include "plan/step/generator.hpp"

namespace garonne::plan {

struct TiedParameters {
  int device = -1;                           // with the other copies; -1 = there are none
  std::vector<TrainedParameter> parameters;  // each is reduced for itself
  std::int64_t elements = 0;
  std::int64_t largest_elements = 0;
};
TiedParameters tied_parameters(const DeviceParameters& device);

struct TiedLinks {
  GroupLink tied;  // between the two stages
  GroupLink data;
  GroupLink tensor;
};

// From the end of both stages' last backward on, as the generator has them (finish_tied()): one
// parameter after the other, over the tensor group, the copies and the data group. `host_waits`:
// for messages between stages. What the processor does for one sum goes on beside the next.
double tied_sum_seconds(const TiedParameters& tied, const GridCandidate& candidate,
                        const StepShape& step, const TiedLinks& links, bool host_waits);

}  // namespace garonne::plan
