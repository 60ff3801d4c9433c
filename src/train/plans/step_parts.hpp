// What the seconds of a step go to, and what its ranks send.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "plan/model/group_links.hpp"
#include "plan/program/replay.hpp"

namespace garonne::train {

struct StepParts {
  double bubble_seconds =
      0;  // of a step, the busiest stage computes nothing, whatever it waits for
  // Of the busiest stage; the largest is what binds.
  std::vector<std::pair<std::string, double>> parts;  // name, seconds
  // Bytes a step that some rank sends over links inside its node, and over those that leave it.
  double inside_traffic = 0;
  double between_traffic = 0;
};

// The largest part.
const std::pair<std::string, double>& binding(
    const std::vector<std::pair<std::string, double>>& parts);

// Shares of the step of the busiest stage, of all its parts together.
struct StepShares {
  double compute = 0;
  double again = 0;          // blocks run again
  double communication = 0;  // that nothing hides: links, and sums of the step
  double bubble = 0;         // waits for other stages; none on one stage
  double other = 0;          // launches, copies
};
StepShares shares_of(const std::vector<std::pair<std::string, double>>& parts);

// In two steps, since a replay of all stages takes their Programs: what the Programs say, then what
// the replay says.
class StepPartsOfStages {
 public:
  // By stage. `links`: null where all ranks are on one node.
  StepPartsOfStages(const std::vector<plan::Program>& programs, const plan::GridLinks* links);

  StepParts of(const std::vector<plan::Prediction>& predictions) const;

 private:
  struct Computing {
    double own = 0;  // seconds
    double again = 0;
  };
  Computing add_stage(const plan::Program& program, int stage, const plan::GridLinks* links);

  std::vector<Computing> computing_;  // by stage
  std::size_t busiest_ = 0;
  bool tensor_leaves_ = false;
  bool data_leaves_ = false;
  double inside_traffic_ = 0;
  double between_traffic_ = 0;
};

}  // namespace garonne::train
