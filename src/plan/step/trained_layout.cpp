#include "plan/step/trained_layout.hpp"

#include <algorithm>
#include <numeric>

#include "base/bytes.hpp"
#include "base/index.hpp"

namespace garonne::plan {
namespace {

// Every byte count is a multiple of the granularity.
constexpr std::int64_t shard_granularity_elements = 256;

// Elements: whole blocks of every state.
std::int64_t state_granularity(const StepShape& step) {
  std::int64_t granularity = 1;
  for (const StateSpec& state : step.optimizer_states)
    granularity = std::lcm(granularity, state.blocks.elements);
  return granularity;
}

// Of `elements` of parameters, of which `trained` are updated here.
std::int64_t kept_bytes(std::int64_t elements, std::int64_t trained, const MatrixSides& sides,
                        const StepShape& step) {
  const ElementBytes& bytes = step.element_bytes;
  const auto rounded = [&](std::int64_t all) { return round_up(all, step.granularity); };
  std::int64_t kept = rounded(elements * bytes.parameter) + rounded(trained * bytes.master);
  for (const StateSpec& state : step.optimizer_states)
    kept += rounded(state.blocks.count(trained, sides) * state.element_bytes(bytes.state));
  return kept;
}

}  // namespace

TrainedParameter trained_parameter(const ParameterSpec& parameter, int block,
                                   const StepShape& step) {
  return {parameter.elements,
          parameter.sides(),
          parameter.complex,
          parameter.tied,
          step.tensor_group.size() > 1 && parameter.sums_over_tensor,
          block};
}

std::vector<int> completing_nodes(const ModelGraph& graph) {
  std::vector<int> nodes(graph.parameters.size(), -1);
  for (int n = static_cast<int>(graph.nodes.size()) - 1; n >= 0; --n) {
    if (!graph.has_backward(graph.nodes[as_index(n)])) continue;
    for (const int parameter : graph.nodes[as_index(n)].parameters) nodes[as_index(parameter)] = n;
  }
  return nodes;
}

std::vector<int> completion_order(const std::vector<int>& completing_nodes) {
  std::vector<int> order(completing_nodes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return completing_nodes[as_index(a)] > completing_nodes[as_index(b)];
  });
  return order;
}

bool in_shards(const StepShape& step) {
  return step.zero > 0 && step.data_group.size() > 1;
}

std::vector<TrainedBucket> cut_into_buckets(const std::vector<TrainedParameter>& completed,
                                            const StepShape& step) {
  const bool shards = in_shards(step);
  // What is gathered for one block is of use to that block only.
  const bool by_block = shards && step.zero == 3;
  const std::int64_t granularity = state_granularity(step);
  std::vector<TrainedBucket> buckets;
  // Gradients that are summed over the tensor group first have buckets of their own.
  int open[2] = {-1, -1};
  for (std::size_t k = 0; k < completed.size(); ++k) {
    const TrainedParameter& next = completed[k];
    const std::int64_t target =
        (next.sums_over_tensor ? step.tensor_bucket_bytes : step.bucket_bytes) /
        step.element_bytes.gradient;
    int& number = open[next.sums_over_tensor ? 1 : 0];
    const auto fits = [&] {
      if (number < 0 || target <= 0) return false;
      const TrainedBucket& bucket = buckets[as_index(number)];
      const TrainedParameter& first = completed[as_index(bucket.members.front())];
      return (!next.complex || bucket.elements % 2 == 0) &&
             // Shards are cut between blocks of states, which start where their parameter does.
             (!shards || bucket.elements % granularity == 0) &&
             bucket.elements + next.elements <= target && !next.tied && !first.tied &&
             !(by_block && next.block != first.block);
    };
    if (!fits()) {
      number = static_cast<int>(buckets.size());
      buckets.emplace_back();
    }
    TrainedBucket& bucket = buckets[as_index(number)];
    bucket.members.push_back(static_cast<int>(k));
    bucket.elements += next.elements;
    bucket.sides.rows += next.sides.rows;
    bucket.sides.columns += next.sides.columns;
  }
  return buckets;
}

std::int64_t shard_elements(std::int64_t bucket_elements, const StepShape& step) {
  const auto ranks = static_cast<std::int64_t>(step.data_group.size());
  return round_up((bucket_elements + ranks - 1) / ranks,
                  std::lcm(shard_granularity_elements, state_granularity(step)));
}

std::int64_t static_bytes(const std::vector<TrainedParameter>& completed, const StepShape& step) {
  std::int64_t bytes = 0;
  for (const LibraryWorkspace& workspace : step.workspaces)
    bytes += round_up(workspace.bytes, step.granularity);
  if (!in_shards(step)) {
    for (const TrainedParameter& one : completed)
      bytes += kept_bytes(one.elements, one.elements, one.sides, step);
    return bytes;
  }
  const auto ranks = static_cast<std::int64_t>(step.data_group.size());
  for (const TrainedBucket& bucket : cut_into_buckets(completed, step)) {
    const std::int64_t shard = shard_elements(bucket.elements, step);
    bytes += kept_bytes(step.zero < 3 ? shard * ranks : shard, shard, bucket.sides, step);
  }
  return bytes;
}

}  // namespace garonne::plan
