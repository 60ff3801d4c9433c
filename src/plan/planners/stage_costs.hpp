// What the models of named planners have in common: sums over runs of blocks, equal stages, and
// the grid that is nearest to a choice.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/grid/block_table.hpp"
#include "plan/planners/planner.hpp"

namespace garonne::plan {

// Of what a stage trains: elements, and rows and columns of all its parameters together.
struct TrainedSize {
  std::int64_t elements = 0;
  MatrixSides sides = {};

  void add(const BlockParameter& parameter) {
    elements += parameter.elements;
    sides.rows += parameter.sides.rows;
    sides.columns += parameter.sides.columns;
  }
};

// Of a run of blocks, one micro-batch; seconds with the collectives of the tensor group.
struct StageCost {
  double forward = 0;
  double backward = 0;
  double again = 0;  // where everything is run again
  TrainedSize trained;
  std::int64_t kept_bytes = 0;  // from forward to backward, where nothing is run again
  std::int64_t lean_bytes = 0;  // where everything is
  std::int64_t working_bytes = 0;
  std::int64_t remade_bytes = 0;  // of the block that has most to run again
  std::int64_t input_bytes = 0;   // what comes in from the blocks before

  double seconds(bool recomputes) const { return forward + backward + (recomputes ? again : 0); }
};
StageCost stage_cost(const std::vector<BlockCost>& blocks, int first, int last);

// Parameters, gradients, masters and optimizer states; the latter two on one of `shards` ranks, but
// for states of rows and columns, which all of them have.
std::int64_t training_bytes(const StepShape& step, const TrainedSize& trained, int shards = 1);

// What a stage needs with so many micro-batches between their forwards and backwards.
std::int64_t stage_bytes(const StepShape& step, const StageCost& cost, std::int64_t in_flight,
                         bool recomputes, int shards = 1);

// Micro-batches in flight on a stage of 1F1B, at most.
std::int64_t in_flight_1f1b(int stage, int stages, std::int64_t micro_batches);

// Stages of equally many blocks, the first ones of one more; what may not begin a part counts as
// one with what is before. Empty where there are fewer.
std::vector<StageCost> equal_stages(const std::vector<BlockCost>& blocks, int stages);
// Their first blocks, and one past the last.
std::vector<int> equal_firsts(const std::vector<BlockCost>& blocks, int stages);

// The slowest link between stages that follow each other.
Link hop_link(const Cluster& cluster, const GridShape& shape);
// Ascending.
std::vector<std::int64_t> divisors_of(std::int64_t number);

// Equal stages of one shape.
std::vector<PlacedBlocks> placed_equally(const std::vector<BlockCost>& blocks,
                                         const GridShape& shape, bool recomputes);

// "2 stages × data 4 × tensor 1, micro-batch 2, all run again".
std::string words_of(const GridShape& shape, std::int64_t micro_batch, bool recomputes);
// "0-2 on 4, 3-5 on 2 × 2": blocks and data × tensor ranks.
std::string words_of(const std::vector<PlacedBlocks>& placed);

// Sets the grid of a choice: the candidate of the search with these keys, else none and a note.
void set_grid(const PlannerProblem& problem, const GridShape& shape, const std::string& schedule,
              int zero, std::int64_t micro_batch, NamedChoice& choice, int chunks = 1);
// The same for stages of any widths: the tensor ranks that most devices have, and the most stages,
// not more than chosen, that divide the ranks and leave data ranks that divide the batch. Notes
// what is changed.
void set_nearest_grid(const PlannerProblem& problem, const std::string& schedule,
                      NamedChoice& choice);

// A choice of nothing, and why.
NamedChoice nothing_fits();
void add_note(const std::string& text, NamedChoice& choice);

}  // namespace garonne::plan
