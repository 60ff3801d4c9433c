#include "plan/planners/planner_cases.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/error.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan::test {
namespace {

// Seconds and bytes of the block on one rank and for one sample.
struct Drawn {
  double forward = 0;
  double backward = 0;
  std::int64_t saved = 0;
  std::int64_t input = 0;
  std::int64_t elements = 0;
  bool may_begin = true;
};

}  // namespace

PlannerInputs random_inputs(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](unsigned number) { return random() % number; };
  const auto between = [&](double least, double most) {
    return least + (most - least) * static_cast<double>(random() % 10007) / 10007;
  };
  PlannerInputs inputs;
  const int ranks[] = {1, 2, 3, 4, 4, 6, 8, 8, 8};
  inputs.limits.ranks = ranks[below(9)];
  const std::int64_t batches[] = {4, 8, 12, 16, 24};
  inputs.limits.global_batch = batches[below(5)];
  inputs.limits.blocks = static_cast<int>(1 + below(6));
  Cluster& cluster = inputs.cluster;
  cluster.devices_per_node = static_cast<int>(1U << below(4));
  cluster.nodes = 8;
  cluster.inside_node = {between(0, 1e-5), between(2e9, 2e10)};
  cluster.between_nodes = {between(0, 1e-4), between(2e8, 5e9)};
  inputs.limits.most_tensor = std::min(4, cluster.devices_per_node);
  inputs.micro_batch = std::int64_t{1} << below(3);
  inputs.step = step_shape(1, 1, 4 << 20);
  inputs.step.update_seconds_per_element = between(0, 1e-9);
  inputs.budget_bytes =
      static_cast<std::int64_t>(std::exp(between(std::log(20.0), std::log(600.0)))) << 20;
  std::vector<Drawn> drawn(static_cast<std::size_t>(inputs.limits.blocks));
  for (Drawn& block : drawn) {
    block.forward = between(1e-4, 3e-3);
    block.backward = 2 * block.forward * between(0.8, 1.2);
    block.saved = static_cast<std::int64_t>(between(1, 20)) << 20;
    block.input = static_cast<std::int64_t>(between(1, 8) * 100'000);
    block.elements = static_cast<std::int64_t>(between(1e5, 4e6));
    block.may_begin = &block == drawn.data() || below(10) > 0;
  }
  const bool no_four = below(4) == 0;
  const double tensor_link = between(0, 3e-4);
  inputs.blocks = [=](int tensor, bool, std::int64_t micro_batch) {
    if (no_four && tensor == 4) throw ConfigError("grid.tensor", "4", "three heads");
    const double work = static_cast<double>(micro_batch) / tensor;
    std::vector<BlockCost> blocks;
    for (const Drawn& one : drawn) {
      BlockCost block;
      block.forward_seconds = 2e-5 + one.forward * work;  // small ones are less efficient
      block.backward_seconds = 2e-5 + one.backward / 2 * work;
      block.weight_seconds = one.backward / 2 * work;
      if (tensor > 1) {
        block.forward_link_seconds = tensor_link * static_cast<double>(micro_batch);
        block.backward_link_seconds = 2 * block.forward_link_seconds;
      }
      block.input_bytes = blocks.empty() ? 0 : one.input * micro_batch;
      block.working_bytes = 3 * one.input * micro_batch;
      const auto number = static_cast<int>(blocks.size());
      block.parameters = {{.parameter = number, .node = number, .elements = one.elements / tensor}};
      // The last shares parameters with the first, as tied embeddings do.
      if (blocks.size() + 1 == drawn.size() && drawn.size() > 2) {
        block.parameters.push_back({.parameter = -1,
                                    .earlier_block = 0,
                                    .node = number,
                                    .elements = drawn.front().elements / tensor / 2});
      }
      const auto saved = static_cast<std::int64_t>(static_cast<double>(one.saved) * work);
      block.options = {
          {-1, saved, 0}, {1, saved / 3, 0.4 * one.forward * work}, {2, 0, block.forward_seconds}};
      block.may_begin_part = one.may_begin;
      block.cut_seconds = one.forward + one.backward;
      blocks.push_back(block);
    }
    return blocks;
  };
  return inputs;
}

std::optional<std::vector<BlockCost>> blocks(const PlannerInputs& inputs, int tensor,
                                             std::int64_t micro_batch) {
  try {
    return inputs.blocks(tensor, false, micro_batch);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

Stage stage(const std::vector<BlockCost>& blocks, int first, int last) {
  Stage sum;
  sum.comes_in = static_cast<double>(blocks[as_index(first)].input_bytes);
  for (int b = first; b < last; ++b) {
    const BlockCost& block = blocks[as_index(b)];
    const auto in = static_cast<double>(block.input_bytes);
    const auto most = static_cast<double>(block.options.front().saved_bytes);
    const auto least = static_cast<double>(block.options.back().saved_bytes);
    sum.forward += block.forward_seconds + block.forward_link_seconds;
    sum.backward += block.backward_seconds + block.weight_seconds + block.backward_link_seconds;
    sum.again += block.options.back().again_seconds;
    sum.kept += in + most;
    sum.lean += in + least;
    sum.working = std::max(sum.working, static_cast<double>(block.working_bytes));
    sum.remade = std::max(sum.remade, most - least);
    for (const BlockParameter& used : block.parameters)
      sum.parameters += used.earlier_block < first ? static_cast<double>(used.elements) : 0;
  }
  return sum;
}

std::vector<int> equal_cut(const std::vector<BlockCost>& blocks, int stages) {
  std::vector<int> groups;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    if (b == 0 || blocks[b].may_begin_part) groups.push_back(static_cast<int>(b));
  }
  if (stages > static_cast<int>(groups.size())) return {};
  std::vector<int> cut;
  int next = 0;
  for (int s = 0; s < stages; ++s) {
    cut.push_back(groups[as_index(next)]);
    const int left = static_cast<int>(groups.size()) - next;
    next += (left + stages - s - 1) / (stages - s);
  }
  cut.push_back(static_cast<int>(blocks.size()));
  return cut;
}

double held(const PlannerInputs& inputs, double elements, int shards) {
  const ElementBytes& bytes = inputs.step.element_bytes;
  const double shard = std::floor(elements / shards);
  double of_shard = static_cast<double>(bytes.master);
  for (const StateSpec& state : inputs.step.optimizer_states)
    of_shard += static_cast<double>(state.element_bytes(bytes.state));
  return elements * static_cast<double>(bytes.parameter + bytes.gradient) + shard * of_shard;
}

double all_reduce(double bytes, int members, const Link& link) {
  if (members == 1) return 0;
  const double piece = bytes / members;
  return 2 * (members - 1) * (link.latency_seconds + piece / link.bytes_per_second);
}

Link data_link(const PlannerInputs& inputs, const GridShape& shape) {
  const int reach = shape.tensor * shape.data;
  // Some group of data ranks is on two nodes.
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    const int first = rank / reach * reach + rank % shape.tensor;
    const int last = first + (shape.data - 1) * shape.tensor;
    if (first / inputs.cluster.devices_per_node != last / inputs.cluster.devices_per_node)
      return inputs.cluster.between_nodes;
  }
  return inputs.cluster.inside_node;
}

Link slowest_hop(const PlannerInputs& inputs, const GridShape& shape) {
  const int reach = shape.tensor * shape.data;
  for (int rank = 0; rank + reach < shape.ranks(); ++rank) {
    if (rank / inputs.cluster.devices_per_node != (rank + reach) / inputs.cluster.devices_per_node)
      return inputs.cluster.between_nodes;
  }
  return inputs.cluster.inside_node;
}

NamedChoice ask(const std::string& name, const PlannerInputs& inputs) {
  PlannerProblem problem(inputs);
  return planners_of(name).front()->choose(problem);
}

void expect_seconds(double found, double best, unsigned seed) {
  if (best == never)
    EXPECT_EQ(found, never) << seed;
  else
    EXPECT_NEAR(found / best, 1, 1e-9) << seed;
}

void expect_sound(const NamedChoice& choice, const PlannerInputs& inputs, unsigned seed) {
  EXPECT_EQ(choice.placed.empty(), choice.seconds == never) << seed;
  EXPECT_FALSE(choice.words.empty()) << seed;
  EXPECT_TRUE(choice.grid || !choice.note.empty()) << seed;
  int next = 0;
  for (const PlacedBlocks& run : choice.placed) {
    EXPECT_EQ(run.first, next) << seed;
    EXPECT_LT(run.first, run.last) << seed;
    next = run.last;
  }
  EXPECT_TRUE(choice.placed.empty() || next == inputs.limits.blocks) << seed;
  if (!choice.grid) return;
  const auto candidates = grid_candidates(inputs.limits, inputs.cluster);
  EXPECT_NE(std::find(candidates.begin(), candidates.end(), *choice.grid), candidates.end())
      << seed;
}

}  // namespace garonne::plan::test
