#include "plan/step/node_schedule.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace garonne::plan {
namespace {

std::size_t index(int id) {
  return static_cast<std::size_t>(id);
}

bool has_record(const NodeSpec& node) {
  return !node.private_slot_bytes.empty();
}

}  // namespace

std::vector<Pass> backward_passes(const ModelGraph& graph, int node) {
  const NodeSpec& spec = graph.nodes[index(node)];
  if (!graph.has_backward(spec)) return {};
  if (!spec.splits_backward) return {Pass::Backward};
  const bool any = std::any_of(spec.inputs.begin(), spec.inputs.end(), [&](int input) {
    return graph.values[index(input)].differentiable;
  });
  if (!any) return {Pass::BackwardWeight};
  return {Pass::BackwardWeight, Pass::BackwardInput};
}

StepSchedule same_for_all(NodeSchedule schedule, int micro_batches) {
  StepSchedule step;
  step.schedules.push_back(std::move(schedule));
  step.of_micro_batch.assign(index(micro_batches), 0);
  return step;
}

KeptSet keep_everything(const ModelGraph& graph) {
  return {std::vector<bool>(graph.values.size(), true),
          std::vector<bool>(graph.nodes.size(), true)};
}

ScheduleWriter::ScheduleWriter(const ModelGraph& graph)
    : graph_(graph),
      maker_(graph.values.size(), -1),
      value_there_(graph.values.size(), false),
      record_there_(graph.nodes.size(), false),
      handed_over_(graph.nodes.size(), false) {
  for (std::size_t v = 0; v < graph.values.size(); ++v) value_there_[v] = graph.values[v].loaded;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    maker_[index(graph.nodes[n].output)] = static_cast<int>(n);
  }
}

void ScheduleWriter::forward(int node) {
  if (graph_.nodes[index(node)].hands_over) {
    if (handed_over_[index(node)]) return;
    handed_over_[index(node)] = true;
  }
  schedule_.push_back({node, Pass::Forward, false});
  value_there_[index(graph_.nodes[index(node)].output)] = true;
  record_there_[index(node)] = true;
}

void ScheduleWriter::forget_all_but(const KeptSet& kept) {
  for (std::size_t v = 0; v < value_there_.size(); ++v) {
    value_there_[v] = value_there_[v] && (kept.values[v] || graph_.values[v].loaded);
  }
  for (std::size_t n = 0; n < record_there_.size(); ++n) {
    record_there_[n] = record_there_[n] && kept.records[n];
  }
}

void ScheduleWriter::make_value(int value) {
  if (value_there_[index(value)]) return;
  const int maker = maker_[index(value)];
  expect(maker >= 0, graph_.values[index(value)].name + " was loaded and cannot be made again");
  for (const int input : graph_.nodes[index(maker)].inputs) make_value(input);
  forward(maker);
}

void ScheduleWriter::make_record(int node) {
  if (record_there_[index(node)] || !has_record(graph_.nodes[index(node)])) return;
  for (const int input : graph_.nodes[index(node)].inputs) make_value(input);
  // Making an input may have run this node already, where a value is read around it.
  if (!record_there_[index(node)]) forward(node);
}

void ScheduleWriter::backward(int node) {
  const std::vector<Pass> passes = backward_passes(graph_, node);
  if (passes.empty()) return;
  // The record first: making it makes the output again, too.
  make_record(node);
  for (const int value : graph_.nodes[index(node)].pinned_values) make_value(value);
  for (const Pass pass : passes) schedule_.push_back({node, pass, false});
}

NodeSchedule ScheduleWriter::take() {
  mark_kept_records(graph_, schedule_);
  return std::move(schedule_);
}

void mark_kept_records(const ModelGraph& graph, NodeSchedule& schedule) {
  std::vector<bool> wanted(graph.nodes.size(), false);
  for (auto step = schedule.rbegin(); step != schedule.rend(); ++step) {
    if (!step->forward()) {
      wanted[index(step->node)] = true;
    } else {
      step->keep = wanted[index(step->node)];
      wanted[index(step->node)] = false;
    }
  }
}

NodeSchedule recompute_on_demand(const ModelGraph& graph, const KeptSet& kept) {
  ScheduleWriter writer(graph);
  const int nodes = static_cast<int>(graph.nodes.size());
  for (int n = 0; n < nodes; ++n) writer.forward(n);
  writer.forget_all_but(kept);
  for (int n = nodes - 1; n >= 0; --n) writer.backward(n);
  return writer.take();
}

std::vector<int> values_that_leave_blocks(const ModelGraph& graph) {
  std::vector<int> block_of(graph.values.size(), -1);
  for (const auto& node : graph.nodes) block_of[index(node.output)] = node.block;
  std::vector<bool> leaves(graph.values.size(), false);
  for (const auto& node : graph.nodes) {
    for (const int input : node.inputs) {
      if (block_of[index(input)] >= 0 && block_of[index(input)] != node.block) {
        leaves[index(input)] = true;
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
  std::vector<std::pair<int, int>> ranges(index(graph.blocks()), {-1, -1});
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    auto& range = ranges[index(graph.nodes[index(n)].block)];
    if (range.first < 0) range.first = n;
    range.second = n + 1;
  }
  return ranges;
}

NodeSchedule recompute_blocks(const ModelGraph& graph, const RecomputeChoice& recompute) {
  expect(recompute.size() == index(graph.blocks()), "one recompute choice a block");
  KeptSet kept = keep_everything(graph);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!recompute[index(graph.nodes[n].block)]) continue;
    kept.records[n] = false;
    kept.values[index(graph.nodes[n].output)] = false;
  }
  for (const int value : values_that_leave_blocks(graph)) kept.values[index(value)] = true;
  return recompute_on_demand(graph, kept);
}

}  // namespace garonne::plan
