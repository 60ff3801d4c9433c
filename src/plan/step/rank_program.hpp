// The Program of a stage as one of its ranks runs it.
#pragma once

#include <cstdint>
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

// Where the numbers of a parameter are in what is summed for its bucket (SumTensors): `each` a
// parameter, in the order of the bucket. No buffer where `sums` is none.
Range sums_of_parameter(const Bucket& bucket, int parameter, int sums, int each);

// Of a stage's Program, what the rank at `place` trains, keeps and counts. Generators do so for the
// first rank. `graph` is the stage's.
void place_shards(Program& program, const ModelGraph& graph, const Coordinates& place);

// Puts into a Program of the stage, by whatever rank it is run, what belongs to a rank alone:
// groups, and place_shards().
Program program_of_rank(Program program, const ModelGraph& graph, const RankPlace& place);

// The Program without all that: equal on the ranks of a stage. It is not to be run.
Program without_rank(Program program);

}  // namespace garonne::plan
