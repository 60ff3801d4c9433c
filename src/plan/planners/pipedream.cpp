// PipeDream (Narayanan et al., SOSP'19), its optimizer for levels of links: the blocks of a level
// are cut into stages in so many copies each that the slowest is as fast as can be, by dynamic
// programming; a level whose machines are all in use is one machine of the next. A stage of m
// copies takes (seconds + 4 (m − 1) parameter bytes / (bandwidth · m)) / m, with the second term
// divided by the machines inside one of the level. The copies of activations and parameters that
// wait for machines behind a stage have to fit. One micro-batch size, that of the run file; no
// tensor ranks.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "base/index.hpp"
#include "plan/planners/stage_costs.hpp"

namespace garonne::plan {
namespace {

constexpr double cannot_be = std::numeric_limits<double>::infinity();

// Blocks [i, j) by their sums.
struct Sums {
  std::vector<std::vector<double>> seconds;
  std::vector<std::vector<std::int64_t>> activations;
  std::vector<std::vector<std::int64_t>> parameters;
  std::vector<bool> may_begin;
  int blocks = 0;
};

Sums sums_of(const std::vector<BlockCost>& blocks, const StepShape& step) {
  Sums sums;
  sums.blocks = static_cast<int>(blocks.size());
  const std::size_t size = blocks.size() + 1;
  sums.seconds.assign(size, std::vector<double>(size, 0));
  sums.activations.assign(size, std::vector<std::int64_t>(size, 0));
  sums.parameters.assign(size, std::vector<std::int64_t>(size, 0));
  for (int i = 0; i < sums.blocks; ++i) {
    sums.may_begin.push_back(i == 0 || blocks[as_index(i)].may_begin_part);
    for (int j = i + 1; j <= sums.blocks; ++j) {
      const StageCost cost = stage_cost(blocks, i, j);
      sums.seconds[as_index(i)][as_index(j)] = cost.seconds(false);
      sums.activations[as_index(i)][as_index(j)] = cost.kept_bytes;
      sums.parameters[as_index(i)][as_index(j)] =
          cost.trained.elements * step.element_bytes.parameter;
    }
  }
  return sums;
}

// Machines of one level, each of `inside` machines of the level below.
struct Level {
  int machines = 1;
  int inside = 1;
  double bytes_per_second = 1;
};

class LevelPlan {
 public:
  struct Run {
    int first = 0;
    int last = 0;
    int copies = 1;
  };

  // `seconds`: of blocks [i, j) on one machine; cannot_be where they do not fit.
  LevelPlan(const Sums& sums, const std::vector<std::vector<double>>& seconds, const Level& level,
            std::int64_t memory_bytes, bool from_the_first_only)
      : sums_(sums), seconds_(seconds), level_(level), memory_bytes_(memory_bytes) {
    const std::size_t size = as_index(sums.blocks) + 1;
    best_.assign(size, std::vector<std::vector<Best>>(
                           size, std::vector<Best>(as_index(level.machines) + 1)));
    for (int i = 0; i < (from_the_first_only ? 1 : sums.blocks); ++i) {
      if (!sums.may_begin[as_index(i)]) continue;
      for (int j = i + 1; j <= sums.blocks; ++j) {
        for (int m = 1; m <= level.machines; ++m)
          best_[as_index(i)][as_index(j)][as_index(m)] = best_of(i, j, m);
      }
    }
  }

  double seconds(int i, int j) const {
    return best_[as_index(i)][as_index(j)][as_index(level_.machines)].seconds;
  }

  // Of blocks [i, j) on all machines.
  std::vector<Run> runs(int i, int j) const {
    std::vector<Run> found;
    for (int m = level_.machines; m > 0;) {
      const Best& best = best_[as_index(i)][as_index(j)][as_index(m)];
      found.push_back({best.split, j, best.copies});
      j = best.split;
      m -= best.copies;
    }
    std::reverse(found.begin(), found.end());
    return found;
  }

 private:
  // The last stage is [split, j) in so many copies.
  struct Best {
    double seconds = cannot_be;
    int split = 0;
    int copies = 0;
  };

  // As the last of the first `used` machines.
  double stage_seconds(int i, int j, int copies, int used) const {
    const std::int64_t bytes =
        sums_.activations[as_index(i)][as_index(j)] + sums_.parameters[as_index(i)][as_index(j)];
    const std::int64_t behind = (level_.machines - used + copies - 1) / copies;
    if (behind * bytes > memory_bytes_) return cannot_be;
    const double sum = 4.0 * (copies - 1) *
                       static_cast<double>(sums_.parameters[as_index(i)][as_index(j)]) /
                       (level_.bytes_per_second * copies) / level_.inside;
    return (seconds_[as_index(i)][as_index(j)] + sum) / copies;
  }

  Best best_of(int i, int j, int m) const {
    Best best{stage_seconds(i, j, m, m), i, m};
    for (int k = i + 1; k < j; ++k) {
      if (!sums_.may_begin[as_index(k)]) continue;
      for (int copies = 1; copies < m; ++copies) {
        const double seconds =
            std::max(best_[as_index(i)][as_index(k)][as_index(m - copies)].seconds,
                     stage_seconds(k, j, copies, m));
        if (seconds < best.seconds) best = {seconds, k, copies};
      }
    }
    return best;
  }

  const Sums& sums_;
  const std::vector<std::vector<double>>& seconds_;
  Level level_;
  std::int64_t memory_bytes_;
  std::vector<std::vector<std::vector<Best>>> best_;
};

NamedChoice cannot(const std::string& why) {
  NamedChoice choice;
  choice.words = "nothing";
  choice.note = why;
  return choice;
}

}  // namespace

NamedChoice choose_pipedream(PlannerProblem& problem) {
  const PlannerInputs& inputs = problem.inputs();
  const std::int64_t micro_batch = inputs.micro_batch;
  const auto* blocks = problem.blocks(1, micro_batch);
  if (blocks == nullptr) return cannot(fmt::format("no micro-batch of {}", micro_batch));
  const int on_node = std::min(problem.ranks(), inputs.cluster.devices_per_node);
  const int nodes = problem.ranks() / on_node;
  if (problem.ranks() % on_node != 0)
    return cannot(fmt::format("its levels are whole nodes of {} ranks", on_node));
  const Sums sums = sums_of(*blocks, inputs.step);
  const LevelPlan inside(sums, sums.seconds,
                         {on_node, 1, inputs.cluster.inside_node.bytes_per_second},
                         inputs.budget_bytes, false);
  std::vector<std::vector<double>> of_node(
      as_index(sums.blocks) + 1, std::vector<double>(as_index(sums.blocks) + 1, cannot_be));
  for (int i = 0; i < sums.blocks; ++i) {
    for (int j = i + 1; j <= sums.blocks; ++j)
      of_node[as_index(i)][as_index(j)] = inside.seconds(i, j);
  }
  const LevelPlan between(sums, of_node,
                          {nodes, on_node, inputs.cluster.between_nodes.bytes_per_second},
                          inputs.budget_bytes, true);
  if (between.seconds(0, sums.blocks) == cannot_be) return nothing_fits();
  NamedChoice choice;
  for (const auto& outer : between.runs(0, sums.blocks)) {
    for (const auto& run : inside.runs(outer.first, outer.last))
      choice.placed.push_back({run.first, run.last, outer.copies * run.copies, 1, false});
  }
  choice.micro_batch = micro_batch;
  choice.schedule = "1f1b";
  choice.seconds = between.seconds(0, sums.blocks) * static_cast<double>(problem.global_batch()) /
                   static_cast<double>(micro_batch);
  choice.words = words_of(choice.placed);
  if (choice.placed.size() > 1)
    add_note("weights of several steps at once are not run: 1f1b with a flush after each step",
             choice);
  set_nearest_grid(problem, choice.schedule, choice);
  return choice;
}

}  // namespace garonne::plan
