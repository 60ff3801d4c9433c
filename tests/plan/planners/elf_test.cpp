// The integer programs of ELF against all choices, and the search's own plans against what they
// prove.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <random>

#include "base/error.hpp"
#include "plan/graph/linear_program.hpp"
#include "plan/grid/block_planner.hpp"
#include "plan/model/group_links.hpp"
#include "plan/pipeline/pipeline_stage.hpp"
#include "plan/pipeline/schedule_registry.hpp"
#include "plan/planners/planner_cases.hpp"
#include "plan/planners/recomputation_program.hpp"
#include "plan/program/replay.hpp"
#include "plan/stage/stage_planner.hpp"
#include "plan/step/graphs.hpp"
#include "plan/step/pipelines.hpp"

namespace garonne::plan {
namespace {

using test::never;

// As the variable says, which the long suite sets.
int number_of(const char* variable, int quick) {
  const char* value = std::getenv(variable);
  return value == nullptr ? quick : std::atoi(value);
}

// What one pass costs: a micro-batch in a part of the model.
struct Part {
  int device = 0;
  int chunk = 0;
  double forward = 0;
  double backward = 0;
  double weight = 0;
  std::vector<ChunkOption> options;
};

struct Instance {
  PipelineSchedule schedule;
  std::vector<Part> parts;  // in the order of the model
  double hop = 0;
  std::vector<double> room;  // by device
  std::vector<double> after;
};

// Every operation again and again, until nothing moves any more.
double slow_seconds(const Instance& instance, const std::vector<std::vector<int>>& options) {
  const PipelineSchedule& schedule = instance.schedule;
  const auto many = as_index(schedule.micro_batches);
  std::vector<std::vector<double>> forward(instance.parts.size(), std::vector<double>(many, 0));
  std::vector<std::vector<double>> backward = forward;
  std::vector<double> ends(as_index(schedule.devices), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (int device = 0; device < schedule.devices; ++device) {
      double now = 0;
      for (const PipelineOperation& one : schedule.order[as_index(device)]) {
        std::size_t part = 0;
        while (instance.parts[part].device != device || instance.parts[part].chunk != one.chunk)
          ++part;
        const auto m = as_index(one.micro_batch);
        const auto come = [&](std::size_t from, double when) {
          now = std::max(now, when + (instance.parts[from].device == device ? 0 : instance.hop));
        };
        double& end = (one.work == PipelineWork::Forward ? forward : backward)[part][m];
        if (one.work == PipelineWork::Forward) {
          if (part > 0) come(part - 1, forward[part - 1][m]);
          now += instance.parts[part].forward;
        } else if (one.work == PipelineWork::BackwardWeight) {
          now += instance.parts[part].weight;
          continue;
        } else {
          if (part + 1 < instance.parts.size()) come(part + 1, backward[part + 1][m]);
          now += instance.parts[part].backward +
                 instance.parts[part].options[as_index(options[part][m])].again_seconds;
          if (one.work == PipelineWork::Backward) now += instance.parts[part].weight;
        }
        moved = moved || now != end;
        end = now;
      }
      ends[as_index(device)] = now;
    }
  }
  double last = 0;
  for (int device = 0; device < schedule.devices; ++device)
    last = std::max(last, ends[as_index(device)] + instance.after[as_index(device)]);
  return last;
}

bool slow_fits(const Instance& instance, const std::vector<std::vector<int>>& options) {
  for (int device = 0; device < instance.schedule.devices; ++device) {
    double held = 0;
    for (const PipelineOperation& one : instance.schedule.order[as_index(device)]) {
      for (std::size_t part = 0; part < instance.parts.size(); ++part) {
        if (instance.parts[part].device != device || instance.parts[part].chunk != one.chunk)
          continue;
        const ChunkOption& option =
            instance.parts[part].options[as_index(options[part][as_index(one.micro_batch)])];
        const auto saved = static_cast<double>(option.saved_bytes);
        if (one.work == PipelineWork::Forward) held += saved;
        const bool remakes =
            one.work == PipelineWork::Backward || one.work == PipelineWork::BackwardInput;
        const double remade = remakes ? static_cast<double>(option.remade_bytes) : 0;
        if (held + remade > instance.room[as_index(device)]) return false;
        const double weight = instance.parts[part].weight;
        if (one.work == PipelineWork::Backward ||
            (one.work == PipelineWork::BackwardWeight && weight > 0) || (remakes && weight == 0))
          held -= saved;
      }
    }
  }
  return true;
}

// All choices, but those that do not fit or take too long whatever the rest is: an option of none
// is the least of all there.
double best_of_all(const Instance& instance, double limit) {
  Instance open = instance;
  std::vector<std::vector<int>> options;
  for (Part& part : open.parts) {
    ChunkOption least = part.options.front();
    for (const ChunkOption& option : part.options) {
      least.saved_bytes = std::min(least.saved_bytes, option.saved_bytes);
      least.remade_bytes = std::min(least.remade_bytes, option.remade_bytes);
      least.again_seconds = std::min(least.again_seconds, option.again_seconds);
    }
    part.options.push_back(least);
    options.emplace_back(as_index(instance.schedule.micro_batches),
                         static_cast<int>(part.options.size()) - 1);
  }
  double best = limit;
  const std::function<void(std::size_t, int)> choose = [&](std::size_t part, int m) {
    if (!slow_fits(open, options)) return;
    const double seconds = slow_seconds(open, options);
    if (seconds >= best) return;
    if (part == open.parts.size()) {
      best = seconds;
      return;
    }
    const bool is_last = m + 1 == open.schedule.micro_batches;
    const int none = options[part][as_index(m)];
    for (int k = 0; k < none; ++k) {
      options[part][as_index(m)] = k;
      choose(part + (is_last ? 1 : 0), is_last ? 0 : m + 1);
    }
    options[part][as_index(m)] = none;
  };
  choose(0, 0);
  return best;
}

std::vector<ChunkOption> slow_options(const std::vector<BlockCost>& blocks, int first, int last) {
  std::vector<ChunkOption> all = {{}};
  for (int b = first; b < last; ++b) {
    std::vector<ChunkOption> longer;
    for (const ChunkOption& shorter : all) {
      for (const BlockOption& option : blocks[as_index(b)].options) {
        ChunkOption one = shorter;
        one.saved_bytes += blocks[as_index(b)].input_bytes + option.saved_bytes;
        one.remade_bytes = std::max(
            one.remade_bytes, blocks[as_index(b)].options.front().saved_bytes - option.saved_bytes);
        one.again_seconds += option.again_seconds;
        longer.push_back(one);
      }
    }
    all = longer;
  }
  // Without what another has at least as good in everything.
  std::vector<ChunkOption> found;
  for (const ChunkOption& one : all) {
    const auto as_good = [&](const ChunkOption& other) {
      return other.saved_bytes <= one.saved_bytes && other.again_seconds <= one.again_seconds &&
             other.saved_bytes + other.remade_bytes <= one.saved_bytes + one.remade_bytes;
    };
    if (std::any_of(found.begin(), found.end(), as_good)) continue;
    if (std::any_of(all.begin(), all.end(),
                    [&](const auto& other) { return !(other == one) && as_good(other); }))
      continue;
    found.push_back(one);
  }
  return found;
}

Instance instance_of(const PlannerInputs& inputs, const std::vector<BlockCost>& blocks,
                     const GridShape& shape, const PipelineSchedule& schedule) {
  Instance instance;
  instance.schedule = schedule;
  const auto route = pipeline_routes(schedule.placement, schedule.devices, schedule.chunks).front();
  std::vector<double> seconds;
  std::vector<bool> may_begin;
  for (const BlockCost& block : blocks) {
    seconds.push_back(block.cut_seconds);
    may_begin.push_back(block.may_begin_part);
  }
  const auto firsts = balanced_blocks(seconds, may_begin, static_cast<int>(route.size()));
  std::vector<std::vector<bool>> has(as_index(schedule.devices),
                                     std::vector<bool>(blocks.size(), false));
  std::vector<double> elements(as_index(schedule.devices), 0);
  std::vector<double> working(as_index(schedule.devices), 0);
  std::vector<double> most = working;
  const Link link = test::slowest_hop(inputs, shape);
  double largest = 0;
  for (std::size_t p = 0; p < route.size(); ++p) {
    const int first = firsts[p];
    const int last = firsts[p + 1];
    const std::size_t device = as_index(route[p].device);
    Part part{route[p].device, route[p].chunk, 0, 0, 0, slow_options(blocks, first, last)};
    for (int b = first; b < last; ++b) {
      const BlockCost& block = blocks[as_index(b)];
      part.forward += block.forward_seconds;
      part.backward += block.backward_seconds;
      part.weight += block.weight_seconds;
      most[device] = std::max(most[device], static_cast<double>(block.working_bytes));
      for (const BlockParameter& used : block.parameters) {
        const int user = used.earlier_block;
        const bool has_it = user >= first || (user >= 0 && has[device][as_index(user)]);
        elements[device] += has_it ? 0 : static_cast<double>(used.elements);
      }
    }
    for (int b = first; b < last; ++b) has[device][as_index(b)] = true;
    if (p > 0)
      largest = std::max(largest, static_cast<double>(blocks[as_index(first)].input_bytes));
    if (p > 0 && route[p - 1].device != route[p].device) {
      // Held by who sent it; and one of each kind of message on its way.
      for (ChunkOption& option : instance.parts[p - 1].options)
        option.saved_bytes += blocks[as_index(first)].input_bytes;
      working[device] += static_cast<double>(blocks[as_index(first)].input_bytes);
      working[as_index(route[p - 1].device)] +=
          static_cast<double>(blocks[as_index(first)].input_bytes);
    }
    instance.parts.push_back(part);
  }
  instance.hop = link.latency_seconds + largest / link.bytes_per_second;
  for (std::size_t device = 0; device < elements.size(); ++device) {
    instance.room.push_back(static_cast<double>(inputs.budget_bytes) -
                            test::held(inputs, elements[device], 1) - working[device] -
                            most[device]);
    instance.after.push_back(
        test::all_reduce(elements[device] * static_cast<double>(inputs.step.element_bytes.gradient),
                         shape.data, test::data_link(inputs, shape)) +
        elements[device] *
            (inputs.step.update_seconds_per_element + inputs.step.norm_seconds_per_element));
  }
  return instance;
}

// Of one number of stages, every schedule that searches know.
std::vector<PipelineSchedule> schedules(int stages, int micro_batches, int most_parts) {
  std::vector<PipelineSchedule> found;
  for (const ScheduleTraits& traits : schedule_traits()) {
    if (traits.placement == ChunkPlacement::Bidirectional) continue;
    for (const int chunks : traits.chunks) {
      PipelineRequest request;
      request.stages = stages;
      request.micro_batches = micro_batches;
      if (traits.chunks.size() > 1) request.chunks = chunks;
      if (stages * chunks > most_parts) continue;
      try {
        found.push_back(make_pipeline_schedule(traits.name, request));
      } catch (const ConfigError&) {
        // Not for so many.
      }
    }
  }
  return found;
}

TEST(Elf, FindsTheBestOfAllChoices) {
  if (!has_linear_program_solver()) GTEST_SKIP() << "built without HiGHS";
  const int instances = number_of("GARONNE_RANDOM_PIPELINES", 60);
  int found = 0;
  int recomputing = 0;
  for (unsigned seed = 0; found < instances; ++seed) {
    const PlannerInputs inputs = test::random_inputs(seed);
    const auto blocks = *test::blocks(inputs, 1, inputs.micro_batch);
    int beginnings = 1;
    for (std::size_t b = 1; b < blocks.size(); ++b) beginnings += blocks[b].may_begin_part ? 1 : 0;
    double best = never;
    bool small = true;
    bool any = false;
    for (int stages = 2; stages <= std::min(inputs.limits.ranks, beginnings); ++stages) {
      if (inputs.limits.ranks % stages != 0) continue;
      const GridShape shape{inputs.limits.ranks / stages, stages, 1};
      const std::int64_t of_rank = shape.data * inputs.micro_batch;
      if (inputs.limits.global_batch % of_rank != 0) continue;
      const int micro_batches = static_cast<int>(inputs.limits.global_batch / of_rank);
      any = true;
      small = small && stages * micro_batches <= 8;
      if (!small) break;
      for (const auto& schedule : schedules(stages, micro_batches, beginnings))
        best = best_of_all(instance_of(inputs, blocks, shape, schedule), best);
    }
    if (!small || !any) continue;
    ++found;
    const NamedChoice choice = test::ask("elf", inputs);
    EXPECT_EQ(choice.placed.empty(), best == never) << seed;
    if (best == never) continue;
    EXPECT_NEAR(choice.seconds / best, 1, 1e-7) << seed << ": " << choice.words << choice.note;
    recomputing += std::any_of(choice.placed.begin(), choice.placed.end(),
                               [](const auto& run) { return run.recomputes; });
  }
  std::printf("%d of %d run something again\n", recomputing, found);
  EXPECT_GT(recomputing, found / 20);
}

// A chain with seconds and bytes of its own for every node.
ModelGraph random_chain(unsigned seed, int blocks) {
  std::mt19937 random(seed);
  ModelGraph graph = test::chain(blocks, 2);
  for (NodeSpec& node : graph.nodes) {
    node.forward.seconds = node.forward_keep.seconds =
        0.5 + static_cast<double>(random() % 100) / 50;
    node.backward.seconds = 2 * node.forward.seconds;
    graph.values[as_index(node.output)].bytes = 64 * static_cast<std::int64_t>(32 + random() % 64);
    for (std::int64_t& bytes : node.private_slot_bytes)
      bytes = 64 * static_cast<std::int64_t>(1 + random() % 64);
  }
  return graph;
}

// How stages are planned: by blocks as the search over grids does, or node by node as its answer is
// planned for a run.
using PlanStage = std::function<Program(const ModelGraph&, const StepShape&, std::int64_t budget)>;
const PlanStage by_blocks = [](const ModelGraph& graph, const StepShape& step,
                               std::int64_t budget_bytes) {
  return plan_by_blocks(graph, step, budget_bytes).program;
};
const PlanStage by_node = [](const ModelGraph& graph, const StepShape& step,
                             std::int64_t budget_bytes) {
  StageRequest wish;
  wish.budget_bytes = budget_bytes;
  return plan_stage(graph, step, wish).program;
};

// All stages, replayed together; never where they do not fit.
double replayed_seconds(const ModelGraph& whole, const PipelineSchedule& schedule,
                        std::int64_t budget_bytes, const PlanStage& plan) {
  std::vector<Program> programs;
  for (int stage = 0; stage < schedule.devices; ++stage) {
    PipelineStage cut = make_pipeline_stage(whole, schedule, stage);
    StepShape step = test::step_shape(schedule.micro_batches, 1, 0);
    step.pipeline = std::move(cut.place);
    step.world_group.clear();
    for (int rank = 0; rank < schedule.devices; ++rank) {
      step.world_group.push_back(rank);
      step.pipeline.group.push_back(rank);
    }
    step.data_group = {stage};
    try {
      programs.push_back(plan(cut.cut.graph, step, budget_bytes));
    } catch (const PlanError&) {
      return never;
    }
    programs.back().rank = stage;
  }
  double seconds = 0;
  for (const Prediction& prediction : replay_pipeline(std::move(programs)))
    seconds = std::max(seconds, prediction.seconds);
  return seconds;
}

std::int64_t peak_of(const ModelGraph& whole, int stages, int micro_batches,
                     const std::string& policy) {
  std::int64_t peak = 0;
  for (Program& program : test::programs_of("1f1b", stages, micro_batches, whole, policy))
    peak = std::max(peak, replay(program).peak_bytes);
  return peak;
}

TEST(Elf, ProvesThatTheSearchIsNear) {
  if (!has_linear_program_solver()) GTEST_SKIP() << "built without HiGHS";
  const int pipelines = number_of("GARONNE_RANDOM_PIPELINES", 6);
  double worst = 0;
  double sum = 0;
  int compared = 0;
  for (unsigned seed = 0; compared < std::min(pipelines, 50); ++seed) {
    std::mt19937 random(seed);
    const int stages[] = {2, 3, 2, 3, 5};
    const int number = stages[random() % 5];
    const int micro_batches = 2 + static_cast<int>(random() % 5);
    const int blocks = number + static_cast<int>(random() % 4);
    const ModelGraph whole = random_chain(seed, blocks);
    const std::int64_t lean = peak_of(whole, number, micro_batches, "full");
    const std::int64_t full = peak_of(whole, number, micro_batches, "keep-all");
    PlannerInputs inputs;
    inputs.limits = {.ranks = number, .global_batch = micro_batches, .blocks = blocks + 1};
    inputs.cluster.devices_per_node = number;
    inputs.budget_bytes = lean + (full - lean) * (10 + static_cast<int>(random() % 81)) / 100;
    inputs.step = test::step_shape(1, 1, 0);
    inputs.blocks = [&](int, bool, std::int64_t) { return block_costs(whole); };
    const NamedChoice choice = test::ask("elf", inputs);
    if (choice.placed.empty()) continue;
    EXPECT_EQ(choice.note.find("stopped"), std::string::npos) << choice.note;
    double best = never;
    for (const auto& schedule : schedules(number, micro_batches, blocks + 1)) {
      for (const PlanStage& plan : {by_blocks, by_node})
        best = std::min(best, replayed_seconds(whole, schedule, inputs.budget_bytes, plan));
    }
    ++compared;
    EXPECT_LE(best, 1.03 * choice.seconds) << seed << ": " << choice.words;
    worst = std::max(worst, best / choice.seconds);
    sum += best / choice.seconds;
  }
  std::printf("auto to the proven optimum, %d pipelines: mean %.4f, worst %.4f\n", compared,
              sum / compared, worst);
}

}  // namespace
}  // namespace garonne::plan
