// A model as estimates of grids see it: its blocks on one tensor rank, where the parts of pipelines
// begin, and what their devices train.
#pragma once

#include <map>
#include <vector>

#include "plan/grid/block_table.hpp"
#include "plan/grid/device_parameters.hpp"
#include "plan/model/software.hpp"
#include "plan/pipeline/schedule.hpp"

namespace garonne::plan {

struct EstimatedModel {
  std::vector<BlockCost> blocks;

  // The first block of each of so many parts, and the end. Throws ConfigError where there are not
  // as many.
  const std::vector<int>& firsts_of(int parts, const Software& software);
  // Of parts on routes that begin at these blocks.
  const std::vector<DeviceParameters>& parameters_of(const std::vector<PipelineRoute>& routes,
                                                     const std::vector<int>& beginnings,
                                                     bool over_tensor);

 private:
  std::map<int, std::vector<int>> firsts_;  // by number of parts
  std::map<std::vector<int>, std::vector<DeviceParameters>>
      parameters_;  // by devices of parts of routes
};

}  // namespace garonne::plan
