#include "plan/step/node_schedule.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/index.hpp"

namespace garonne::plan {

std::vector<Pass> backward_passes(const ModelGraph& graph, int node) {
  const NodeSpec& spec = graph.nodes[as_index(node)];
  if (!graph.has_backward(spec)) return {};
  if (!spec.splits_backward) return {Pass::Backward};
  const bool any = std::any_of(spec.inputs.begin(), spec.inputs.end(), [&](int input) {
    return graph.values[as_index(input)].differentiable;
  });
  if (!any) return {Pass::BackwardWeight};
  return {Pass::BackwardWeight, Pass::BackwardInput};
}

StepSchedule same_for_all(NodeSchedule schedule, int micro_batches) {
  StepSchedule step;
  step.schedules.push_back(std::move(schedule));
  step.of_micro_batch.assign(as_index(micro_batches), 0);
  return step;
}

ScheduleWriter::ScheduleWriter(const ModelGraph& graph)
    : graph_(graph),
      maker_(graph.values.size(), -1),
      value_there_(graph.values.size(), false),
      record_there_(graph.nodes.size(), false),
      option_(graph.nodes.size(), 0),
      handed_over_(graph.nodes.size(), false) {
  for (std::size_t v = 0; v < graph.values.size(); ++v) value_there_[v] = graph.values[v].loaded;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    maker_[as_index(graph.nodes[n].output)] = static_cast<int>(n);
  }
}

void ScheduleWriter::forward(int node) {
  if (graph_.nodes[as_index(node)].hands_over) {
    if (handed_over_[as_index(node)]) return;
    handed_over_[as_index(node)] = true;
  }
  schedule_.push_back({node, Pass::Forward});
  value_there_[as_index(graph_.nodes[as_index(node)].output)] = true;
  record_there_[as_index(node)] = true;
}

void ScheduleWriter::decide_value(int value, Fate fate) {
  const ValueSpec& spec = graph_.values[as_index(value)];
  if (!spec.loaded && !is_kept(spec, fate)) value_there_[as_index(value)] = false;
}

void ScheduleWriter::decide_record(int node, RecordFate fate) {
  if (!is_kept(graph_.nodes[as_index(node)], fate)) record_there_[as_index(node)] = false;
  option_[as_index(node)] = fate.option;
}

void ScheduleWriter::decide(const Fates& fates) {
  for (int v = 0; v < static_cast<int>(graph_.values.size()); ++v)
    decide_value(v, fates.values[as_index(v)]);
  for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n)
    decide_record(n, fates.records[as_index(n)]);
}

void ScheduleWriter::make_value(int value) {
  if (value_there_[as_index(value)]) return;
  const int maker = maker_[as_index(value)];
  expect(maker >= 0, graph_.values[as_index(value)].name + " was loaded and cannot be made again");
  for (const int input : graph_.nodes[as_index(maker)].inputs) make_value(input);
  forward(maker);
}

void ScheduleWriter::make_record(int node) {
  const NodeSpec& spec = graph_.nodes[as_index(node)];
  if (record_there_[as_index(node)] || !spec.keep_option(option_[as_index(node)]).has_record())
    return;
  for (const int input : spec.inputs) make_value(input);
  // Making an input may have run this node already, where a value is read around it.
  if (!record_there_[as_index(node)]) forward(node);
}

void ScheduleWriter::backward(int node) {
  const std::vector<Pass> passes = backward_passes(graph_, node);
  if (passes.empty()) return;
  // The record first: making it makes the output again, too.
  make_record(node);
  const KeepOption& option = graph_.nodes[as_index(node)].keep_option(option_[as_index(node)]);
  for (const int value : option.pinned_values) make_value(value);
  for (const Pass pass : passes) schedule_.push_back({node, pass});
}

NodeSchedule ScheduleWriter::take() {
  mark_kept_records(option_, schedule_);
  return std::move(schedule_);
}

void mark_kept_records(const std::vector<int>& options, NodeSchedule& schedule) {
  std::vector<bool> wanted(options.size(), false);
  for (auto step = schedule.rbegin(); step != schedule.rend(); ++step) {
    if (!step->forward()) {
      wanted[as_index(step->node)] = true;
    } else {
      step->option =
          wanted[as_index(step->node)] ? options[as_index(step->node)] : NodeStep::no_record;
      wanted[as_index(step->node)] = false;
    }
  }
}

NodeSchedule recompute_on_demand(const ModelGraph& graph, const Fates& fates) {
  ScheduleWriter writer(graph);
  const int nodes = static_cast<int>(graph.nodes.size());
  for (int n = 0; n < nodes; ++n) writer.forward(n);
  writer.decide(fates);
  for (int n = nodes - 1; n >= 0; --n) writer.backward(n);
  return writer.take();
}

std::vector<int> values_that_leave_blocks(const ModelGraph& graph) {
  std::vector<int> block_of(graph.values.size(), -1);
  for (const auto& node : graph.nodes) block_of[as_index(node.output)] = node.block;
  std::vector<bool> leaves(graph.values.size(), false);
  for (const auto& node : graph.nodes) {
    for (const int input : node.inputs) {
      if (block_of[as_index(input)] >= 0 && block_of[as_index(input)] != node.block) {
        leaves[as_index(input)] = true;
      }
    }
  }
  std::vector<int> values;
  for (std::size_t v = 0; v < leaves.size(); ++v) {
    if (leaves[v]) values.push_back(static_cast<int>(v));
  }
  return values;
}

std::vector<std::pair<int, int>> block_ranges(const ModelGraph& graph) {
  std::vector<std::pair<int, int>> ranges(as_index(graph.blocks()), {-1, -1});
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    auto& range = ranges[as_index(graph.nodes[as_index(n)].block)];
    if (range.first < 0) range.first = n;
    range.second = n + 1;
  }
  return ranges;
}

NodeSchedule recompute_blocks(const ModelGraph& graph, const RecomputeChoice& recompute) {
  expect(recompute.size() == as_index(graph.blocks()), "one recompute choice a block");
  Fates fates = keep_everything(graph);
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    if (recompute[as_index(graph.nodes[as_index(n)].block)])
      set_fate(graph, n, {Fate::Recompute}, fates);
  }
  for (const int value : values_that_leave_blocks(graph))
    fates.values[as_index(value)] = Fate::Keep;
  return recompute_on_demand(graph, fates);
}

}  // namespace garonne::plan
