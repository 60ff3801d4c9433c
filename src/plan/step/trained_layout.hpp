// How a rank keeps what it trains: parameters in buckets, shards of these, and the bytes of all of
// it between steps. Programs are laid out by it, and estimates ask it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/state_spec.hpp"
#include "plan/model/model_graph.hpp"
#include "plan/step/generator.hpp"

namespace garonne::plan {

// A parameter of a stage, as its layout sees it.
struct TrainedParameter {
  std::int64_t elements = 0;
  MatrixSides sides = {};
  bool complex = false;
  bool tied = false;
  bool sums_over_tensor = false;  // and there is a tensor group
  int block = 0;                  // of the first node that uses it and has a backward
};
TrainedParameter trained_parameter(const ParameterSpec& parameter, int block,
                                   const StepShape& step);

// By parameter: the first node that uses it and has a backward, when whose last run the gradient is
// complete; -1 = there is none.
std::vector<int> completing_nodes(const ModelGraph& graph);

// Parameters in the order in which the backward completes their gradients.
std::vector<int> completion_order(const std::vector<int>& completing_nodes);

// Whether the data group shares what is kept: ZeRO with more than one data rank.
bool in_shards(const StepShape& step);

struct TrainedBucket {
  std::vector<int> members;  // indices into what was cut, ascending
  std::int64_t elements = 0;
  MatrixSides sides = {};  // rows of all its parameters, and columns
};
// `completed`: in that order.
std::vector<TrainedBucket> cut_into_buckets(const std::vector<TrainedParameter>& completed,
                                            const StepShape& step);

// Of a bucket of so many, on each data rank; more than its part where shards end between blocks.
std::int64_t shard_elements(std::int64_t bucket_elements, const StepShape& step);

// Bytes of what is live between steps on one rank: parameters, masters, optimizer states of every
// shape, and workspaces, each rounded up to the granularity.
std::int64_t static_bytes(const std::vector<TrainedParameter>& completed, const StepShape& step);

}  // namespace garonne::plan
