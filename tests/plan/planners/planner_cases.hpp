// Random small instances for named planners, and sums over their blocks, spelled out.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "plan/planners/planner.hpp"

namespace garonne::plan::test {

inline constexpr double never = std::numeric_limits<double>::infinity();

// At most 6 blocks and 8 devices; the same for the same seed.
PlannerInputs random_inputs(unsigned seed);

// What the models of the planners know of blocks [first, last).
struct Stage {
  double forward = 0;
  double backward = 0;
  double again = 0;
  double kept = 0;  // bytes of a micro-batch
  double lean = 0;
  double working = 0;
  double remade = 0;
  double parameters = 0;  // elements
  double comes_in = 0;    // bytes
};
Stage stage(const std::vector<BlockCost>& blocks, int first, int last);

// The same blocks without the planner's memory; none where it throws.
std::optional<std::vector<BlockCost>> blocks(const PlannerInputs& inputs, int tensor,
                                             std::int64_t micro_batch);

// First blocks of stages of equally many blocks, and the end; empty where there are too few.
std::vector<int> equal_cut(const std::vector<BlockCost>& blocks, int stages);

// Of what is trained: parameters and gradients, and masters and states on one of so many ranks.
double held(const PlannerInputs& inputs, double elements, int shards);

double all_reduce(double bytes, int members, const Link& link);
// Of a group of data ranks, or between stages.
Link data_link(const PlannerInputs& inputs, const GridShape& shape);
Link slowest_hop(const PlannerInputs& inputs, const GridShape& shape);

// What the planner of that name chooses.
NamedChoice ask(const std::string& name, const PlannerInputs& inputs);
// `best` may be never.
void expect_seconds(double found, double best, unsigned seed);
// What can be said of every choice.
void expect_sound(const NamedChoice& choice, const PlannerInputs& inputs, unsigned seed);

}  // namespace garonne::plan::test
