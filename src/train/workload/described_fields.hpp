// Fields whose files are not there yet, by their sizes: enough for a plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "train/workload/data_facts.hpp"

namespace garonne::train {

struct DescribedFields {
  std::int64_t channels = 0;         // of a frame
  std::vector<std::int64_t> points;  // along each axis; one to three
  std::string grid = "box";          // box, periodic, or one of sphere_grid_name

  // "73x721x1440:equiangular": channels, points, and the grid where it is no box. Throws
  // ConfigError
  // (`option`).
  static DescribedFields parse(const std::string& option, const std::string& text);
};

// What files of such fields would say to this run: its data.inputs and data.targets are of the
// channels, which are all of a frame where it names none. Throws ConfigError where the run does not
// learn from fields, or what it names does not go with them.
DataFacts facts_of_described(const RunConfig& config, const DescribedFields& fields,
                             const std::string& option);

// facts_of(), whose IoError says, where the data of a model on fields are not there, that `option`
// takes their sizes.
DataFacts facts_of_data_or_advice(const RunConfig& config, const std::string& option);

}  // namespace garonne::train
