// Planners of the literature against looking at everything that their rules allow, by their own
// models, spelled out slowly.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "base/error.hpp"
#include "plan/planners/planner_cases.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan {
namespace {

using test::ask;
using test::expect_seconds;
using test::expect_sound;
using test::never;

constexpr unsigned instances = 200;

bool fits(const PlannerInputs& inputs, double bytes) {
  return bytes <= static_cast<double>(inputs.budget_bytes);
}

// Whether all of `stages` fit as 1F1B has them; `flight`: micro-batches under way at most.
bool all_fit(const PlannerInputs& inputs, const std::vector<test::Stage>& stages, double flight,
             bool recomputes, int shards, double more_a_parameter = 0) {
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const test::Stage& one = stages[s];
    const double under_way = std::min(static_cast<double>(stages.size() - s), flight);
    const double activations =
        under_way * (recomputes ? one.lean : one.kept) + (recomputes ? one.remade : 0);
    if (!fits(inputs, test::held(inputs, one.parameters, shards) +
                          more_a_parameter * one.parameters + one.working + activations))
      return false;
  }
  return true;
}

// Every grid with equal stages and every micro-batch.
using Visit = std::function<void(const GridShape& shape, std::int64_t micro_batch,
                                 std::int64_t micro_batches, const std::vector<test::Stage>&)>;
void for_all_equal(const PlannerInputs& inputs, const Visit& visit) {
  for (int tensor = 1; tensor <= inputs.limits.most_tensor; ++tensor) {
    for (int pipeline = 1; pipeline <= inputs.limits.blocks; ++pipeline) {
      for (int data = 1; data <= inputs.limits.ranks; ++data) {
        const GridShape shape{data, pipeline, tensor};
        if (shape.ranks() != inputs.limits.ranks) continue;
        for (std::int64_t b = 1; b <= inputs.limits.global_batch; ++b) {
          if (inputs.limits.global_batch % (data * b) != 0) continue;
          const auto blocks = test::blocks(inputs, tensor, b);
          if (!blocks) continue;
          const std::vector<int> cut = test::equal_cut(*blocks, pipeline);
          if (cut.empty()) continue;
          std::vector<test::Stage> stages;
          for (int s = 0; s < pipeline; ++s)
            stages.push_back(test::stage(*blocks, cut[as_index(s)], cut[as_index(s + 1)]));
          visit(shape, b, inputs.limits.global_batch / data / b, stages);
        }
      }
    }
  }
}

double slowest(const std::vector<test::Stage>& stages, bool recomputes) {
  double most = 0;
  for (const auto& one : stages)
    most = std::max(most, one.forward + one.backward + (recomputes ? one.again : 0));
  return most;
}

TEST(NamedPlanners, AreAskedByName) {
  EXPECT_EQ(planners_of("all").size(), named_planners().size());
  const auto two = planners_of("vtrain,megatron,vtrain");
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0]->name, "megatron");
  EXPECT_EQ(two[1]->name, "vtrain");
  EXPECT_THROW(planners_of("vtrain,alpa"), ConfigError);
  EXPECT_THROW(planners_of(""), ConfigError);
}

TEST(NamedPlanners, MegatronFollowsItsRules) {
  for (unsigned seed = 0; seed < instances; ++seed) {
    const PlannerInputs inputs = test::random_inputs(seed);
    int most_tensor = 1;
    for (int tensor = 1; tensor <= inputs.limits.most_tensor; ++tensor) {
      if (inputs.limits.ranks % tensor == 0 && test::blocks(inputs, tensor, 1))
        most_tensor = tensor;
    }
    // Model-parallel ranks first, seconds next.
    std::pair<int, double> best{std::numeric_limits<int>::max(), never};
    for_all_equal(inputs, [&](const GridShape& shape, std::int64_t, std::int64_t micro_batches,
                              const std::vector<test::Stage>& stages) {
      if (shape.pipeline > 1 && shape.tensor != most_tensor) return;
      const auto many = static_cast<double>(micro_batches);
      const bool keeps = all_fit(inputs, stages, many, false, shape.data);
      if (!keeps && !all_fit(inputs, stages, many, true, shape.data)) return;
      best = std::min(best, {shape.tensor * shape.pipeline,
                             (many + shape.pipeline - 1) * slowest(stages, !keeps)});
    });
    const NamedChoice choice = ask("megatron", inputs);
    expect_sound(choice, inputs, seed);
    expect_seconds(choice.seconds, best.second, seed);
    if (best.second == never) continue;
    EXPECT_EQ(choice.placed.size() * static_cast<std::size_t>(choice.placed[0].tensor),
              static_cast<std::size_t>(best.first))
        << seed;
  }
}

// 1F1B, each end from the ends that it waits for.
std::vector<double> ends_of_stages(const std::vector<test::Stage>& stages, int micro_batches,
                                   double hop) {
  const int number = static_cast<int>(stages.size());
  // By stage and micro-batch: forward, backward; below 0 = not yet known.
  std::vector<std::vector<std::pair<double, double>>> ends(
      stages.size(), std::vector<std::pair<double, double>>(as_index(micro_batches), {-1, -1}));
  std::vector<std::pair<int, int>> done(stages.size(), {0, 0});
  std::vector<double> now(stages.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (int s = 0; s < number; ++s) {
      auto& [forwards, backwards] = done[as_index(s)];
      const int ahead = std::min(number - s, micro_batches);
      const bool forward = forwards < micro_batches && (forwards - backwards < ahead);
      if (!forward && backwards == micro_batches) continue;
      const int m = forward ? forwards : backwards;
      double ready = 0;
      if (forward && s > 0) ready = ends[as_index(s - 1)][as_index(m)].first;
      if (!forward && s + 1 < number) ready = ends[as_index(s + 1)][as_index(m)].second;
      if (ready < 0) continue;
      if (forward ? s > 0 : s + 1 < number) ready += hop;
      now[as_index(s)] = std::max(now[as_index(s)], ready) +
                         (forward ? stages[as_index(s)].forward
                                  : stages[as_index(s)].backward + stages[as_index(s)].again);
      (forward ? ends[as_index(s)][as_index(m)].first : ends[as_index(s)][as_index(m)].second) =
          now[as_index(s)];
      ++(forward ? forwards : backwards);
      moved = true;
    }
  }
  return now;
}

TEST(NamedPlanners, VtrainFindsTheFastestOfItsSimulation) {
  for (unsigned seed = 0; seed < instances; ++seed) {
    const PlannerInputs inputs = test::random_inputs(seed);
    double best = never;
    for_all_equal(inputs, [&](const GridShape& shape, std::int64_t, std::int64_t micro_batches,
                              const std::vector<test::Stage>& stages) {
      if (!all_fit(inputs, stages, static_cast<double>(micro_batches), true, 1)) return;
      double message = 0;
      for (std::size_t s = 1; s < stages.size(); ++s)
        message = std::max(message, stages[s].comes_in);
      const Link link = test::slowest_hop(inputs, shape);
      const double hop = link.latency_seconds + message / link.bytes_per_second;
      const auto ends = ends_of_stages(stages, static_cast<int>(micro_batches), hop);
      double seconds = 0;
      for (std::size_t s = 0; s < stages.size(); ++s) {
        const double gradients =
            stages[s].parameters * static_cast<double>(inputs.step.element_bytes.gradient);
        seconds = std::max(
            seconds, ends[s] +
                         test::all_reduce(gradients, shape.data, test::data_link(inputs, shape)) +
                         stages[s].parameters * inputs.step.update_seconds_per_element);
      }
      best = std::min(best, seconds);
    });
    const NamedChoice choice = ask("vtrain", inputs);
    expect_sound(choice, inputs, seed);
    expect_seconds(choice.seconds, best, seed);
  }
}

TEST(NamedPlanners, DoubleBufferedWeightsFindTheMostSamplesASecond) {
  for (unsigned seed = 0; seed < instances; ++seed) {
    const PlannerInputs inputs = test::random_inputs(seed);
    double best = never;
    for_all_equal(inputs, [&](const GridShape& shape, std::int64_t, std::int64_t micro_batches,
                              const std::vector<test::Stage>& stages) {
      if (shape.tensor > 1 || micro_batches < shape.pipeline) return;
      const auto many = static_cast<double>(micro_batches);
      const Link hop = test::slowest_hop(inputs, shape);
      const auto message = [&](std::size_t s) {
        if (s == 0 || s == stages.size()) return 0.0;
        return hop.latency_seconds + stages[s].comes_in / hop.bytes_per_second;
      };
      for (const bool recomputes : {false, true}) {
        if (!all_fit(inputs, stages, never, recomputes, 1,
                     static_cast<double>(inputs.step.element_bytes.parameter)))
          continue;
        double seconds = 0;
        for (std::size_t s = 0; s < stages.size(); ++s) {
          const double gradients =
              stages[s].parameters * static_cast<double>(inputs.step.element_bytes.gradient);
          const double works = stages[s].forward + stages[s].backward +
                               (recomputes ? stages[s].again : 0) + message(s) + message(s + 1);
          const double sums =
              test::all_reduce(gradients, shape.data, test::data_link(inputs, shape));
          seconds = std::max(seconds, std::max(many * works, sums));
        }
        best = std::min(best, seconds);
      }
    });
    const NamedChoice choice = ask("2bw", inputs);
    expect_sound(choice, inputs, seed);
    expect_seconds(choice.seconds, best, seed);
  }
}

// All ways to give `machines` to stages of blocks [first, last), by recursion without memory.
// `seconds`: of blocks on one machine.
struct PipedreamLevel {
  int machines = 1;
  int inside = 1;
  double bandwidth = 1;
  std::function<double(int, int)> seconds;
};

double pipedream_stage(const PlannerInputs& inputs, const std::vector<BlockCost>& blocks,
                       const PipedreamLevel& level, int i, int j, int copies, int used) {
  const test::Stage one = test::stage(blocks, i, j);
  const double parameters =
      one.parameters * static_cast<double>(inputs.step.element_bytes.parameter);
  const double waits = std::ceil(static_cast<double>(level.machines - used) / copies);
  if (!fits(inputs, waits * (one.kept + parameters))) return never;
  const double sum = 4 * (copies - 1) * parameters / (level.bandwidth * copies) / level.inside;
  return (level.seconds(i, j) + sum) / copies;
}

double pipedream_level(const PlannerInputs& inputs, const std::vector<BlockCost>& blocks,
                       const PipedreamLevel& level, int i, int j, int used) {
  double best = never;
  for (int k = i + 1; k <= j; ++k) {
    if (k < j && !blocks[as_index(k)].may_begin_part) continue;
    for (int copies = 1; used + copies <= level.machines; ++copies) {
      if ((k == j) != (used + copies == level.machines)) continue;
      const double first = pipedream_stage(inputs, blocks, level, i, k, copies, used + copies);
      const double others =
          k == j ? 0 : pipedream_level(inputs, blocks, level, k, j, used + copies);
      best = std::min(best, std::max(first, others));
    }
  }
  return best;
}

TEST(NamedPlanners, PipedreamFindsTheFastestStagesOfItsLevels) {
  for (unsigned seed = 0; seed < instances; ++seed) {
    const PlannerInputs inputs = test::random_inputs(seed);
    const NamedChoice choice = ask("pipedream", inputs);
    expect_sound(choice, inputs, seed);
    const int on_node = std::min(inputs.limits.ranks, inputs.cluster.devices_per_node);
    if (inputs.limits.ranks % on_node != 0) {
      EXPECT_TRUE(choice.placed.empty());
      continue;
    }
    const auto blocks = *test::blocks(inputs, 1, inputs.micro_batch);
    const PipedreamLevel inside{on_node, 1, inputs.cluster.inside_node.bytes_per_second,
                                [&](int i, int j) {
                                  const test::Stage one = test::stage(blocks, i, j);
                                  return one.forward + one.backward;
                                }};
    const PipedreamLevel between{inputs.limits.ranks / on_node, on_node,
                                 inputs.cluster.between_nodes.bytes_per_second, [&](int i, int j) {
                                   // What may not begin a part does not begin one of a level
                                   // either.
                                   if (i > 0 && !blocks[as_index(i)].may_begin_part) return never;
                                   return pipedream_level(inputs, blocks, inside, i, j, 0);
                                 }};
    const double best = pipedream_level(inputs, blocks, between, 0, inputs.limits.blocks, 0) *
                        static_cast<double>(inputs.limits.global_batch) /
                        static_cast<double>(inputs.micro_batch);
    expect_seconds(choice.seconds, best, seed);
    if (best == never) continue;
    int devices = 0;
    for (const PlacedBlocks& run : choice.placed) devices += run.data * run.tensor;
    EXPECT_LE(devices, inputs.limits.ranks);
  }
}

// Of a stage of Piper that has so many micro-batches under way.
double piper_stage(const PlannerInputs& inputs, const std::vector<BlockCost>& blocks, int i, int j,
                   int data, double under_way, double micro_batches) {
  const test::Stage one = test::stage(blocks, i, j);
  double bytes = test::held(inputs, one.parameters, 1) + one.working + under_way * one.kept;
  double seconds = one.forward + one.backward;
  std::set<int> kept;
  for (int b = i; b < j; ++b) kept.insert(b);
  const auto saved = [&](int b) {
    return static_cast<double>(blocks[as_index(b)].options.front().saved_bytes -
                               blocks[as_index(b)].options.back().saved_bytes);
  };
  while (!fits(inputs, bytes)) {
    if (kept.empty()) return never;
    // The cheapest for its bytes is run again.
    int cheapest = *kept.begin();
    for (const int b : kept) {
      if (blocks[as_index(b)].options.back().again_seconds / saved(b) <
          blocks[as_index(cheapest)].options.back().again_seconds / saved(cheapest))
        cheapest = b;
    }
    kept.erase(cheapest);
    bytes -= under_way * saved(cheapest);
    seconds += blocks[as_index(cheapest)].options.back().again_seconds;
  }
  const bool leaves = inputs.limits.ranks > inputs.cluster.devices_per_node;
  const double bandwidth =
      (leaves ? inputs.cluster.between_nodes : inputs.cluster.inside_node).bytes_per_second;
  double messages = i > 0 ? one.comes_in : 0;
  if (j < inputs.limits.blocks) messages += static_cast<double>(blocks[as_index(j)].input_bytes);
  const double gradients = one.parameters * static_cast<double>(inputs.step.element_bytes.gradient);
  return (seconds + 2 * messages / bandwidth) / data +
         4 * (data - 1) * gradients / (data * micro_batches) / bandwidth;
}

TEST(NamedPlanners, PiperFindsTheFastestStages) {
  int recomputing = 0;
  int stopped = 0;
  for (unsigned seed = 0; seed < instances; ++seed) {
    const PlannerInputs inputs = test::random_inputs(seed);
    const NamedChoice choice = ask("piper", inputs);
    expect_sound(choice, inputs, seed);
    const std::int64_t many = inputs.limits.global_batch / inputs.micro_batch;
    std::map<int, std::vector<BlockCost>> of_tensor;
    for (int tensor = 1; tensor <= inputs.limits.most_tensor; ++tensor) {
      const auto blocks = test::blocks(inputs, tensor, inputs.micro_batch);
      if (blocks && inputs.limits.ranks % tensor == 0) of_tensor[tensor] = *blocks;
    }
    // From the last stage to the first, since what is behind says how much is under way.
    const std::function<double(int, int, int)> best_before = [&](int end, int left, int sum) {
      if (end == 0) return 0.0;
      double best = never;
      for (int first = end - 1; first >= 0; --first) {
        for (const auto& [tensor, blocks] : of_tensor) {
          if (first > 0 && !blocks[as_index(first)].may_begin_part) continue;
          for (int data = 1; data * tensor <= left; ++data) {
            if (many % data != 0) continue;
            const double under_way = std::ceil(static_cast<double>(sum + data) / data);
            const double seconds =
                piper_stage(inputs, blocks, first, end, data, under_way, static_cast<double>(many));
            if (seconds >= best) continue;
            best = std::min(
                best, std::max(seconds, best_before(first, left - data * tensor, sum + data)));
          }
        }
      }
      return best;
    };
    const double best = best_before(inputs.limits.blocks, inputs.limits.ranks, 0);
    expect_seconds(choice.seconds, best * static_cast<double>(many), seed);
    stopped += best == never;
    recomputing += std::any_of(choice.placed.begin(), choice.placed.end(),
                               [](const auto& run) { return run.recomputes; });
  }
  EXPECT_GT(recomputing, 5);
  EXPECT_LT(stopped, static_cast<int>(instances) / 2);
}

}  // namespace
}  // namespace garonne::plan
