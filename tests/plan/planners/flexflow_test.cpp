// FlexFlow's Markov chain against every state of its simulation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "plan/planners/planner_cases.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan {
namespace {

using test::never;

// Every state of a chain of blocks, for the best of FlexFlow's simulation.
class EveryState {
 public:
  explicit EveryState(const PlannerInputs& inputs) : inputs_(inputs) {
    for (int tensor = 1; tensor <= inputs.limits.most_tensor; ++tensor) {
      for (int data = 1; data * tensor <= inputs.limits.ranks; ++data) {
        if (inputs.limits.ranks % (data * tensor) != 0 || inputs.limits.global_batch % data != 0)
          continue;
        const auto blocks = test::blocks(inputs, tensor, inputs.limits.global_batch / data);
        if (!blocks) continue;
        const bool leaves = data * tensor > inputs.cluster.devices_per_node;
        widths_.push_back({data,
                           tensor,
                           leaves ? inputs.cluster.between_nodes : inputs.cluster.inside_node,
                           *blocks,
                           {}});
        for (int b = 0; b < inputs.limits.blocks; ++b) {
          test::Stage one = test::stage(*blocks, b, b + 1);
          one.parameters = 0;
          for (const BlockParameter& used : (*blocks)[as_index(b)].parameters)
            one.parameters += used.earlier_block < 0 ? static_cast<double>(used.elements) : 0;
          widths_.back().stages.push_back(one);
        }
      }
    }
  }

  double best() {
    state_.clear();
    best_ = never;
    go(0, 0, 0);
    return best_;
  }

  double seconds(const std::vector<PlacedBlocks>& placed) {
    state_.clear();
    for (const PlacedBlocks& run : placed) {
      for (std::size_t w = 0; w < widths_.size(); ++w) {
        if (widths_[w].data == run.data && widths_[w].tensor == run.tensor) state_.push_back(w);
      }
    }
    double forward = 0;
    double bytes = 0;
    for (int b = 0; b < inputs_.limits.blocks; ++b) {
      forward += widths_[state_[as_index(b)]].stages[as_index(b)].forward + message(b);
      bytes += of_block(b);
    }
    return end(forward, bytes);
  }

 private:
  struct Width {
    int data = 1;
    int tensor = 1;
    Link link;
    std::vector<BlockCost> blocks;
    std::vector<test::Stage> stages;  // of single blocks
  };

  double of_block(int b) const {
    const test::Stage& one = widths_[state_[as_index(b)]].stages[as_index(b)];
    return test::held(inputs_, one.parameters, 1) + one.kept;
  }

  double message(int b) const {
    if (b == 0 || state_[as_index(b)] == state_[as_index(b - 1)]) return 0;
    const Width& here = widths_[state_[as_index(b)]];
    const Width& before = widths_[state_[as_index(b - 1)]];
    const Width& wider = here.data * here.tensor >= before.data * before.tensor ? here : before;
    const double bytes =
        std::floor(widths_[0].stages[as_index(b)].comes_in * widths_[0].data / wider.data);
    return wider.link.latency_seconds + bytes / wider.link.bytes_per_second;
  }

  double end(double now, double bytes) const {
    double sums = 0;
    double working = 0;
    for (int b = inputs_.limits.blocks - 1; b >= 0; --b) {
      const Width& width = widths_[state_[as_index(b)]];
      const test::Stage& one = width.stages[as_index(b)];
      now += one.backward;
      sums = std::max(sums, now) +
             test::all_reduce(
                 one.parameters * static_cast<double>(inputs_.step.element_bytes.gradient),
                 width.data, width.link);
      now += message(b);
      working = std::max(working, one.working);
    }
    const double beyond =
        std::max(0.0, bytes + working - static_cast<double>(inputs_.budget_bytes));
    return std::max(now, sums) + 1e-9 * beyond;
  }

  void go(int block, double forward, double bytes) {
    if (block == inputs_.limits.blocks) {
      best_ = std::min(best_, end(forward, bytes));
      return;
    }
    for (std::size_t w = 0; w < widths_.size(); ++w) {
      state_.push_back(w);
      go(block + 1, forward + widths_[w].stages[as_index(block)].forward + message(block),
         bytes + of_block(block));
      state_.pop_back();
    }
  }

  const PlannerInputs& inputs_;
  std::vector<Width> widths_;
  std::vector<std::size_t> state_;
  double best_ = never;
};

constexpr unsigned instances_of_graphs = 200;

TEST(NamedPlanners, FlexflowReachesTheBestState) {
  unsigned reached = 0;
  for (unsigned seed = 0; seed < instances_of_graphs; ++seed) {
    const PlannerInputs inputs = test::random_inputs(seed);
    const NamedChoice choice = test::ask("flexflow", inputs);
    test::expect_sound(choice, inputs, seed);
    EveryState every(inputs);
    test::expect_seconds(choice.seconds, every.seconds(choice.placed), seed);
    const double best = every.best();
    EXPECT_GE(choice.seconds, best * (1 - 1e-9)) << seed;
    reached += choice.seconds <= best * (1 + 1e-9) ? 1 : 0;
  }
  RecordProperty("reached", static_cast<int>(reached));
  EXPECT_GE(reached, instances_of_graphs * 95 / 100);
}

}  // namespace
}  // namespace garonne::plan
