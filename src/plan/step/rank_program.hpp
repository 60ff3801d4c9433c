// The Program of a stage as one of its ranks runs it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/grid.hpp"
#include "plan/model/model_graph.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan {

// Where a rank is, and whom it meets: global ranks, in the order of the axis.
struct RankPlace {
  int rank = 0;
  Coordinates coordinates;
  std::vector<int> data_group;
  std::vector<int> tensor_group;
  std::vector<int> pipeline_group;
  std::vector<int> tied_group;
};

// Whether the data group shares what is trained.
bool in_shards(const Program& program);

// The part of a parameter that lies in one shard.
struct ShardPiece {
  int parameter = -1;
  std::int64_t first = 0;   // element of the parameter
  std::int64_t offset = 0;  // element of the shard
  std::int64_t elements = 0;
};

// What the shard of data rank `member` holds, in ascending order; the rest of it is padding.
std::vector<ShardPiece> shard_pieces(const Bucket& bucket, int member);

// The sum of `numbers` of the sides of the bucket's parameters, in its order, before this one; of
// parameter -1, which is in none: of all of them.
std::int64_t numbers_before(const Bucket& bucket, const ModelGraph& graph, int parameter,
                            const std::function<std::int64_t(const MatrixSides&)>& numbers);

// Where the numbers of a parameter are in what is summed for its bucket (SumTensors), by round:
// those of its parameters in its order. `sums`: buffers.
std::vector<Range> sums_of_parameter(const Program& program, const Bucket& bucket,
                                     const ModelGraph& graph, int parameter,
                                     const std::vector<int>& sums);

// Of a stage's Program, what the rank at `place` trains, keeps and counts. Generators do so for the
// first rank. `graph` is the stage's.
void place_shards(Program& program, const ModelGraph& graph, const Coordinates& place);

// Puts into a Program of the stage, by whatever rank it is run, what belongs to a rank alone:
// groups, and place_shards().
Program program_of_rank(Program program, const ModelGraph& graph, const RankPlace& place);

// The Program without all that: equal on the ranks of a stage. It is not to be run.
Program without_rank(Program program);

}  // namespace garonne::plan
