// Planners of the literature by name: each asks its own model, by its own rules, for the same
// inputs that the search over grids has. A new one is a file beside this and a line in
// planner_registry.cpp.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/grid/grid_candidate.hpp"
#include "plan/grid/grid_estimate.hpp"
#include "plan/model/cluster.hpp"
#include "plan/step/generator.hpp"

namespace garonne::plan {

struct PlannerInputs {
  Cluster cluster;
  GridLimits limits;
  std::int64_t micro_batch = 1;  // of the run file: for planners that take it as given
  std::int64_t budget_bytes = 0;
  StepShape step;  // as GridEstimator takes it
  BlocksOf blocks;
};

// The inputs, and the costs of blocks, which are asked for once.
class PlannerProblem {
 public:
  explicit PlannerProblem(PlannerInputs inputs) : inputs_(std::move(inputs)) {}

  const PlannerInputs& inputs() const { return inputs_; }
  int ranks() const { return inputs_.limits.ranks; }
  std::int64_t global_batch() const { return inputs_.limits.global_batch; }
  // Of one of `tensor` ranks; null where the model cannot be cut or run like that.
  const std::vector<BlockCost>* blocks(int tensor, std::int64_t micro_batch);

 private:
  PlannerInputs inputs_;
  std::map<std::pair<int, std::int64_t>, std::optional<std::vector<BlockCost>>> blocks_;
};

// A run of blocks as a planner places it: on data × tensor ranks.
struct PlacedBlocks {
  int first = 0;
  int last = 0;
  int data = 1;
  int tensor = 1;
  bool recomputes = false;  // some or all of it

  bool operator==(const PlacedBlocks&) const = default;
};

struct NamedChoice {
  // Of the whole model, in its order: stages, or single blocks where the planner knows no stages.
  // Empty where nothing fits by its own model.
  std::vector<PlacedBlocks> placed;
  std::int64_t micro_batch = 0;  // samples
  std::string schedule;          // empty where it has none
  // Of a step, by its own model.
  double seconds = std::numeric_limits<double>::infinity();
  std::string words;  // the choice, for people
  // The nearest that Garonne runs; none where there is none.
  std::optional<GridCandidate> grid;
  // What of the choice Garonne cannot express and how `grid` differs from it; why there is none.
  std::string note;
};

struct NamedPlanner {
  std::string_view name;
  std::string_view summary;
  NamedChoice (*choose)(PlannerProblem&);
};

const std::vector<NamedPlanner>& named_planners();

// "all", or names with commas between them; in the order of the registry, each once. Throws
// ConfigError (--planner) for a name that is none.
std::vector<const NamedPlanner*> planners_of(const std::string& names);

}  // namespace garonne::plan
