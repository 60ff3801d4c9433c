#include "plan/pipeline/pipeline_stage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/index.hpp"

namespace garonne::plan {
namespace {

// Where each part of the model is, by direction.
using Routes = std::vector<PipelineRoute>;

// The stages whose parts use a parameter, ascending.
std::vector<int> stages_of(const ModelGraph& whole, const std::vector<NodeRange>& parts,
                           const Routes& routes, int parameter) {
  std::set<int> stages;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    for (int n = parts[part].first; n < parts[part].last; ++n) {
      const auto& used = whole.nodes[as_index(n)].parameters;
      if (std::find(used.begin(), used.end(), parameter) == used.end()) continue;
      for (const PipelineRoute& route : routes) stages.insert(route[part].device);
    }
  }
  return {stages.begin(), stages.end()};
}

void mark_tied(const ModelGraph& whole, const std::vector<NodeRange>& parts, const Routes& routes,
               int stage, PipelineStage& result) {
  for (std::size_t p = 0; p < result.cut.parameters.size(); ++p) {
    const std::vector<int> stages = stages_of(whole, parts, routes, result.cut.parameters[p]);
    if (stages.size() == 1) continue;
    ParameterSpec& parameter = result.cut.graph.parameters[p];
    parameter.tied = true;
    parameter.counted = stages.front() == stage;
    if (result.place.tied_group.empty()) result.place.tied_group = stages;
    if (result.place.tied_group != stages) {
      throw ConfigError("grid.pipeline", "",
                        fmt::format("would spread copies of {} over other stages than those of "
                                    "another parameter; use fewer stages or grid.schedule = "
                                    "\"zb-v\"",
                                    parameter.name));
    }
  }
}

// The parts of `cut_by` as parts of a model with the same blocks, of other nodes.
std::vector<NodeRange> same_blocks(const ModelGraph& cut_by, const std::vector<NodeRange>& parts,
                                   const ModelGraph& whole) {
  expect(cut_by.blocks() == whole.blocks(), "a model is cut by one with other blocks");
  std::vector<NodeRange> result;
  const auto first_of_block = [&](int block) {
    const auto begins = [&](const NodeSpec& node) { return node.block >= block; };
    return static_cast<int>(std::find_if(whole.nodes.begin(), whole.nodes.end(), begins) -
                            whole.nodes.begin());
  };
  for (const NodeRange& part : parts) {
    result.push_back({first_of_block(cut_by.nodes[as_index(part.first)].block),
                      first_of_block(cut_by.nodes[as_index(part.last) - 1].block + 1)});
  }
  return result;
}

void expect_work(const PipelineSchedule& schedule, int stage) {
  for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
    const auto& order = schedule.order[as_index(stage)];
    if (std::any_of(order.begin(), order.end(),
                    [&](const auto& one) { return one.chunk == chunk; }))
      continue;
    throw ConfigError("grid.schedule", schedule.name,
                      fmt::format("leaves a direction without work for {}; raise "
                                  "train.global_batch or lower train.micro_batch",
                                  counted(schedule.micro_batches, "micro-batch")));
  }
}

// By boundary between parts: the values that are handed over there.
std::vector<int> values_across(const ModelGraph& whole, const std::vector<NodeRange>& parts) {
  std::vector<int> maker(whole.values.size(), -1);
  std::vector<int> last_reader(whole.values.size(), -1);
  for (std::size_t n = 0; n < whole.nodes.size(); ++n) {
    maker[as_index(whole.nodes[n].output)] = static_cast<int>(n);
    for (const int input : whole.nodes[n].inputs)
      last_reader[as_index(input)] = static_cast<int>(n);
  }
  std::vector<int> count(parts.size() - 1, 0);
  for (std::size_t value = 0; value < maker.size(); ++value) {
    if (maker[value] < 0) continue;
    for (std::size_t part = 0; part < count.size(); ++part) {
      const int last = parts[part].last;
      if (maker[value] < last && last_reader[value] >= last) ++count[part];
    }
  }
  return count;
}

// What is run again is what the plan of a stage says, where it says.
void expect_kept(const PipelineSchedule& schedule) {
  if (schedule.recomputed.empty()) return;
  throw ConfigError("grid.schedule", schedule.name,
                    "keeps inputs only and runs forwards again where it says, which training does "
                    "not: there memory.plan chooses what is run again. Take 1f1b, with memory.plan "
                    "= full to keep as little; garonne simulate shows this one");
}

// Weight gradients are added in the order in which they are made, which is to be that of the
// micro-batches.
void expect_order_of_sums(const PipelineSchedule& schedule, int stage) {
  std::vector<int> last(as_index(schedule.chunks), -1);
  for (const PipelineOperation& operation : schedule.order[as_index(stage)]) {
    if (!ends_activations(operation.work)) continue;
    int& before = last[as_index(operation.chunk)];
    if (operation.micro_batch < before) {
      throw ConfigError(
          "grid.schedule", schedule.name,
          fmt::format("has on device {} the {} after that of micro-batch {}; gradients of weights "
                      "are added in the order of micro-batches",
                      stage, describe(operation), before));
    }
    before = operation.micro_batch;
  }
}

}  // namespace

PipelineStage make_pipeline_stage(const ModelGraph& whole, const PipelineSchedule& schedule,
                                  int stage) {
  return make_pipeline_stage(whole, whole, schedule, stage);
}

PipelineStage make_pipeline_stage(const ModelGraph& whole, const ModelGraph& cut_by,
                                  const PipelineSchedule& schedule, int stage) {
  expect_kept(schedule);
  expect_work(schedule, stage);
  expect_order_of_sums(schedule, stage);
  const Routes routes = pipeline_routes(schedule.placement, schedule.devices, schedule.chunks);
  const auto parts =
      same_blocks(cut_by, balanced_parts(cut_by, static_cast<int>(routes.front().size())), whole);
  PipelineStage result;
  PipelinePlace& place = result.place;
  place.member = stage;
  place.order = schedule.order[as_index(stage)];
  place.directions = static_cast<int>(routes.size());
  std::vector<StagePart> mine;
  for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
    for (const PipelineRoute& route : routes) {
      const auto found = std::find(route.begin(), route.end(), ChunkPlace{stage, chunk});
      if (found == route.end()) continue;
      const int part = static_cast<int>(found - route.begin());
      const int before = found == route.begin() ? -1 : std::prev(found)->device;
      const int after = std::next(found) == route.end() ? -1 : std::next(found)->device;
      // What stays on the device is no message.
      place.chunks.push_back({part, before == stage ? -1 : before, after == stage ? -1 : after});
      mine.push_back({part, before >= 0 && before != stage, after >= 0 && after != stage});
    }
  }
  const std::vector<int> across = values_across(whole, parts);
  int most = 1;
  for (const int values : across) most = std::max(most, values);
  place.lane_numbers = 2 * static_cast<int>(across.size()) * most;
  for (const PipelineRoute& route : routes) {
    for (int part = 0; part + 1 < static_cast<int>(route.size()); ++part) {
      const int here = route[as_index(part)].device;
      const int there = route[as_index(part) + 1].device;
      if (here == there) continue;
      for (int value = 0; value < std::max(1, across[as_index(part)]); ++value) {
        const int number = 2 * (part * most + value);
        place.lanes.push_back({here, there, number});
        place.lanes.push_back({there, here, number + 1});
      }
    }
  }
  result.cut = cut_stage(whole, parts, mine);
  mark_tied(whole, parts, routes, stage, result);
  return result;
}

}  // namespace garonne::plan
