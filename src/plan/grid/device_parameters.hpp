// What the devices of a pipeline train, of which blocks know their parameters.
#pragma once

#include <vector>

#include "plan/grid/block_table.hpp"
#include "plan/grid/grid_candidate.hpp"
#include "plan/pipeline/schedule.hpp"
#include "plan/step/generator.hpp"
#include "plan/step/trained_layout.hpp"

namespace garonne::plan {

struct DeviceParameters {
  struct InBlock {
    int matrices = 0;
    int vectors = 0;
    std::int64_t elements = 0;

    int parameters() const { return matrices + vectors; }
    // What a device is given for their sums and updates.
    int launches(const StepShape& step) const;
  };
  std::vector<InBlock> first_used;  // by block of the device: that none before it here uses
  // In the order in which the backward completes them, as in the graph of the stage
  // (plan/pipeline/stage_cut.hpp).
  std::vector<TrainedParameter> completed;
  int tied_to = -1;  // the device with the other copies of those that are tied
};
// By device, where part k of each route has the blocks from firsts[k] to firsts[k + 1].
// `over_tensor`: there is a tensor group.
std::vector<DeviceParameters> device_parameters(const std::vector<BlockCost>& blocks,
                                                const std::vector<PipelineRoute>& routes,
                                                const std::vector<int>& firsts, bool over_tensor);

// The step of a candidate, as layouts see it: groups of so many members, whoever they are.
StepShape step_of(StepShape step, const GridCandidate& candidate);

}  // namespace garonne::plan
