// A model's micro-batch as tasks for the solvers of graphs, and schedules there and back.
#pragma once

#include <cstdint>

#include "plan/graph/computation_graph.hpp"
#include "plan/step/generator.hpp"

namespace garonne::plan {

// Whether gradient buckets are made during this micro-batch, or were made by an earlier one.
enum class GradientBuckets { Made, There };

struct TaskGraph {
  // Task n < nodes is the forward of node n; the backwards follow in their order. A forward has one
  // option, or two: 0 with its record, 1 without; then one with its record in each further way.
  // The backward that uses the record up has an option for each way, which says what it reads.
  ComputationGraph graph;
  int nodes = 0;
  std::vector<NodeStep> step_of_task;
  // By value of the graph: the model's value that it holds, or -1 (records, gradients).
  std::vector<int> model_value;
  // Live all the time and no value of the graph: parameters, states, sums, and buckets that are
  // there.
  std::int64_t static_bytes = 0;
  std::vector<int> first_backward_task;  // by node
  // By node: its ways to be kept that have options, in their order: the exact ones.
  std::vector<std::vector<int>> keep_options;

  int task_of(const NodeStep& step) const;
};

TaskGraph make_task_graph(const ModelGraph& model, const StepShape& step, GradientBuckets buckets);

TaskSchedule to_task_schedule(const TaskGraph& tasks, const NodeSchedule& schedule);
// Which options forwards took does not matter: the last one before a backward keeps the record, in
// the way from which the backward takes it.
NodeSchedule to_node_schedule(const ModelGraph& model, const TaskGraph& tasks,
                              const TaskSchedule& schedule);

}  // namespace garonne::plan
